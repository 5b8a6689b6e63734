//go:build unix

package main

import (
	"net/http/httptest"
	"os"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/holdfast-go/holdfast/internal/servers"
)

func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0") // Else every process sleeps for a second at its end.
	testscript.Main(m, map[string]func(){"holdfast": main})
}

// TestCommand is the command on a bucket.
func TestCommand(t *testing.T) {
	backend := s3mem.New()
	if err := backend.CreateBucket(servers.S3Bucket); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	t.Cleanup(server.Close)
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("GORACE", os.Getenv("GORACE"))
			env.Setenv("AWS_ACCESS_KEY_ID", servers.S3User)
			env.Setenv("AWS_SECRET_ACCESS_KEY", servers.S3Password)
			env.Setenv("HOLDFAST_STORE", "s3://"+servers.S3Bucket+"/app?endpoint="+server.URL)
			env.Setenv("OTHER", "s3://"+servers.S3Bucket+"/other?endpoint="+server.URL)
			return nil
		},
	})
}
