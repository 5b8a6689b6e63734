//go:build unix

package servers

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The credentials of all S3 servers, and the bucket that each of them has.
const (
	S3User, S3Password = "holdfast", "secret-of-holdfast"
	S3Bucket           = "locks"
)

// S3 is a versitygw, a server of S3 that keeps objects as files.
type S3 struct {
	*Process
	Addr string // host:port
}

// StartS3 starts a server with an empty bucket.
func StartS3(tb testing.TB) *S3 {
	tb.Helper()
	dir := tb.TempDir()
	data := filepath.Join(dir, "data")
	if err := os.MkdirAll(filepath.Join(data, S3Bucket), 0o700); err != nil {
		tb.Fatal(err)
	}
	s := &S3{Addr: fmt.Sprintf("127.0.0.1:%d", freePort(tb))}
	s.Process = runServer(tb, serverSpec{
		name: "versitygw", path: os.Getenv("TEST_S3_SERVER"), dir: dir, ready: s.health,
		args: []string{
			"--access", S3User, "--secret", S3Password, "--port", s.Addr, "--health", "/health", "--quiet", "--keep-alive",
			"posix", data,
		},
	})
	return s
}

// health returns nil if the server serves.
func (s *S3) health() error {
	client := http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://" + s.Addr + "/health")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the health of versitygw: %s", resp.Status)
	}
	return nil
}
