//go:build unix

package pgstore

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// A store that was opened from a URL does not wait at its end for a server that is silent: neither
// for the end of a connection, nor for one that is being made.
func TestCloseWithASilentServer(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	proxy := faultproxy.Start(t, server.Addr)
	u, err := url.Parse(strings.Replace(server.URL("postgres"), server.Addr, proxy.Addr(), 1))
	if err != nil {
		t.Fatal(err)
	}
	opened, err := openURL(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	s := opened.(*Store).engine
	pool := s.pool.(pgxPool)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	proxy.Hold(faultproxy.Up)
	proxy.Hold(faultproxy.Down)
	bounded, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := pool.Acquire(bounded); err == nil {
		t.Fatal("the server answers")
	}
	// A connection that is in use is the one that ends latest of all.
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = s.Close()
	}()
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Error("Close waits for a server that is silent")
	}
	conn.Release()
	<-closed
	proxy.Reset() // The rest of the end is in the background.
}

// Without a timeout in the URL, an attempt to connect ends before that of the pool's default.
func TestConnectTimeout(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]time.Duration{"": 10 * time.Second, "?connect_timeout=7": 7 * time.Second} {
		opened, err := openURL(t.Context(), &url.URL{Scheme: "postgres", Host: "127.0.0.1:1", Path: "/x", RawQuery: strings.TrimPrefix(query, "?")})
		if err != nil {
			t.Fatal(err)
		}
		if got := opened.(*Store).engine.pool.(pgxPool).Config().ConnConfig.ConnectTimeout; got != want {
			t.Errorf("%q: %v, want %v", query, got, want)
		}
		_ = opened.Close()
	}
}
