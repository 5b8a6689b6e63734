//go:build unix

package advisory_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore/advisory"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// The context of a lock ends as soon as its session does, long before the next renewal.
func TestLossEndsTheContext(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t, "fsync=off", "max_connections=20")
	pool := pgtest.OpenPool(t, server.URL("postgres"))
	store := advisory.New(pool, nil)
	locks := holdfast.New(store, nil)
	t.Cleanup(func() {
		if err := errors.Join(locks.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	quickest := time.Hour // On a busy machine one may take long.
	for range 5 {
		lock, err := locks.Acquire(t.Context(), "name", &holdfast.Options{TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		held := lock.Context()
		began := time.Now()
		pgtest.QueryValue[bool](t, pool, "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
		pgtest.Signaled(t, held.Done())
		quickest = min(quickest, time.Since(began))
		if err := lock.Release(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Release: %v, want ErrLost", err)
		}
	}
	if quickest > time.Second {
		t.Errorf("the quickest context ended after %v", quickest)
	}
}
