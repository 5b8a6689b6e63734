//go:build unix

package redisstore

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// shortDir returns a folder whose path leaves room for the name of a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "redis socket")
	server := servers.StartRedis(t, "--unixsocket", path, "--requirepass", "word")
	in := (&url.URL{Path: path}).EscapedPath()
	zero, two := openFromURL(t, "redis+unix://:word@"+in), openFromURL(t, "redis+unix://default:word@"+in+"?db=2&prefix=p:")
	for _, s := range []*Store{zero, two} {
		handsOn(t, s, "name")
	}
	grant(t, zero, "name", time.Minute)
	tcp := openFromURL(t, "redis://:word@"+server.Addr)
	if res, err := tcp.Acquire(t.Context(), request("name", time.Minute)); err != nil || res.Granted {
		t.Errorf("Acquire by TCP of what is held by socket: %+v, %v", res, err)
	}
	fails(t, openFromURL(t, "redis+unix://:SecretWord@"+in), driver.ErrNotApplied, "password", "Acquire")
	fails(t, openFromURL(t, "redis+unix://"+in+"x"), driver.ErrNotApplied, "no such file", allVerbs...)
}

// A server that wants certificates of its clients gets them, and one without is told
// so before anything is sent.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	addr, ca, key := startMutualTLS(t)
	base := "rediss://" + addr + "?server_name=redis.test&ca_file=" + url.QueryEscape(ca)
	s := openFromURL(t, base+"&cert_file="+url.QueryEscape(ca)+"&key_file="+url.QueryEscape(key))
	handsOn(t, s, "name")
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	if res, err := openFromURL(t, base).Acquire(ctx, request("name", time.Minute)); err == nil {
		t.Errorf("Acquire without a certificate: %+v", res)
	}
}

func TestMalformedURLs(t *testing.T) {
	t.Parallel()
	_, ca, key := startMutualTLS(t)
	for text, says := range map[string]string{
		"redis+unix://host/path":                                        "want redis+unix:///path",
		"redis+unix:///":                                                "want redis+unix:///path",
		"redis+unix://":                                                 "want redis+unix:///path",
		"redis+unix:///path?db=-1":                                      "want redis+unix:///path",
		"redis+unix:///path?db=x":                                       `"db"`,
		"redis+unix:///path?ca_file=x":                                  "unknown parameter ca_file",
		"redis://host?db=1":                                             "unknown parameter db",
		"redis://host?cert_file=x&key_file=x":                           "unknown parameter cert_file, key_file",
		"rediss://host?cert_file=" + ca:                                 "belong together",
		"rediss://host?key_file=" + key:                                 "belong together",
		"rediss://host?cert_file=" + ca + "&key_file=":                  "belong together",
		"rediss://:SecretWord@host?cert_file=" + ca + "&key_file=" + ca: "cert_file and key_file",
		"redis+cluster://host?tls=true&key_file=" + key:                 "belong together",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		s, err := openURL(t.Context(), u)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "Secret") {
			t.Errorf("%s: %v, want an error that says %q", text, err, says)
		}
		if s != nil && err == nil {
			_ = s.Close()
		}
	}
}
