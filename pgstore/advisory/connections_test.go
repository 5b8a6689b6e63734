//go:build unix

package advisory

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// Connections duplicates those that locks live on. A duplicate keeps a session that is
// closed without a word, but not one that its store gives up.
func TestConnections(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	opts := keysOf(t)
	s := open(t, server.Addr, opts)
	if files, err := s.Connections(); err != nil || len(files) != 0 {
		t.Errorf("%d connections before there is a lock, %v", len(files), err)
	}
	req := grant(t, s, "name", time.Minute)
	files, err := s.Connections()
	if err != nil || len(files) != 1 {
		t.Fatalf("%d connections, %v, want one", len(files), err)
	}
	defer files[0].Close()

	// As if the process had been killed.
	s.mu.Lock()
	conn := s.sessions[0].conn
	s.mu.Unlock()
	if err := transport(conn).Close(); err != nil {
		t.Fatal(err)
	}
	other := open(t, server.Addr, opts)
	again := pgtest.Request("name", time.Minute)
	for range 20 {
		if res, err := other.Acquire(t.Context(), again); err != nil || res.Granted {
			t.Fatalf("%+v, %v, while the connection is open elsewhere", res, err)
		}
	}
	if err := files[0].Close(); err != nil {
		t.Fatal(err)
	}
	awaitGrant(t, other, again)
	_, _ = s.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: req.Owner}) // it is lost

	// Once given up, the session ends at the server, also if its connection has a duplicate.
	if files, err = other.Connections(); err != nil || len(files) != 1 {
		t.Fatalf("%d connections, %v, want one", len(files), err)
	}
	defer files[0].Close()
	other.mu.Lock()
	sess := other.sessions[0]
	other.mu.Unlock()
	sess.closeNow()
	awaitGrant(t, s, pgtest.Request("name", time.Minute))
}

// awaitGrant waits until a lock is free, and takes it.
func awaitGrant(t *testing.T, s *Store, req driver.AcquireRequest) {
	t.Helper()
	for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(time.Millisecond) {
		if res, err := s.Acquire(t.Context(), req); err == nil && res.Granted {
			return
		}
	}
	t.Fatal("the lock does not get free")
}
