//go:build unix

package storetest

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/servers"
)

var brief = &holdfast.Config{RequestTimeout: 5 * time.Second}

// Ping of every store succeeds, leaves nothing behind, and fails while the store, or a majority of a
// quorum, cannot be reached.
func TestPingOfEveryStore(t *testing.T) {
	Each(t, func(t *testing.T, s *Store) {
		pings(t, s.Open(t, nil))
		if !s.Networked() {
			return
		}
		link := s.Link(t)
		through := s.OpenURL(t, link.URL, brief)
		pings(t, through)
		link.Cut()
		began := time.Now()
		unavailable(t, through, "")
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("Ping took %v", took)
		}
		link.Mend()
	})
}

func pings(t *testing.T, c *holdfast.Client) {
	t.Helper()
	for range 3 {
		if err := c.Ping(t.Context()); err != nil {
			t.Errorf("Ping: %v", err)
		}
	}
	for rec, err := range c.List(t.Context(), "") {
		if !errors.Is(err, holdfast.ErrUnsupported) {
			t.Errorf("Ping has left %+v, %v", rec, err)
		}
	}
}

// unavailable checks that Ping returns ErrUnavailable with that reason.
func unavailable(t *testing.T, c *holdfast.Client, reason string) {
	t.Helper()
	err := c.Ping(t.Context())
	if !errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, holdfast.ErrHeld) || !strings.Contains(err.Error(), reason) {
		t.Errorf("Ping: %v, want ErrUnavailable: … %s", err, reason)
	}
}

// Ping fails on a server that is read-only: it cannot grant locks. Only that of PostgreSQL may be read:
// what a Redis replica has may be old.
func TestPingOfReadOnlyServers(t *testing.T) {
	for name, test := range map[string]struct {
		open   func(t *testing.T) *holdfast.Client
		reason string
		lookup error // of a name that is free
	}{
		"redis": {func(t *testing.T) *holdfast.Client {
			host, port, _ := strings.Cut(servers.StartRedis(t).Addr, ":")
			return new(Store).OpenURL(t, "redis://"+servers.StartRedis(t, "--replicaof", host, port).Addr, brief)
		}, "read only replica", holdfast.ErrUnavailable},
		"postgres": {func(t *testing.T) *holdfast.Client {
			s := startPostgres(t, "postgres", "")
			return s.OpenURL(t, s.URL()+"&options="+url.PathEscape("-c default_transaction_read_only=on"), brief)
		}, "read-only transaction", holdfast.ErrNotHeld},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := test.open(t)
			unavailable(t, c, test.reason)
			if _, err := c.Lookup(t.Context(), "a"); !errors.Is(err, test.lookup) {
				t.Errorf("Lookup: %v", err)
			}
		})
	}
}
