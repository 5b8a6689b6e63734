//go:build unix

package advisory

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// marksOf is how many sessions have the mark of a name.
func marksOf(t *testing.T, s *engine, name string) int {
	t.Helper()
	mark := keyIn(t, s, name).waiterKey()
	return pgtest.QueryValue[int](t, s.pool, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND mode = 'ShareLock'"+
		" AND classid = $1::bigint::oid AND objid = $2::bigint::oid", int64(uint32(mark.bits>>32)), int64(uint32(mark.bits)))
}

// A name with waiters keeps its mark, and has one however many there are.
func TestMarkStays(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.Postgres().Addr, keysOf(t))
	grant(t, s, "name", time.Minute)
	grant(t, s, "short", time.Minute)
	queue(t, s, "name")
	ended, short := queue(t, s, "name"), queue(t, s, "short")
	release(t, s, ended)
	release(t, s, short)
	pgtest.Eventually(t, "end of the other mark", func() bool { return marksOf(t, s, "short") == 0 })
	if n := marksOf(t, s, "name"); n != 1 {
		t.Errorf("a name with a waiter has %d marks, want 1", n)
	}
}

// Names with waiters count as locks, and are refused where there is no room.
func TestMarksCount(t *testing.T) {
	t.Parallel()
	opts := keysOf(t)
	opts.MaxLocks = 3
	s := open(t, pgtest.Postgres().Addr, opts)
	grant(t, s, "held", time.Minute)
	grant(t, s, "awaited", time.Minute)
	waiter := queue(t, s, "awaited")
	if res, err := s.Acquire(t.Context(), pgtest.Request("third", time.Minute)); res.Granted || !errors.Is(err, driver.ErrNotApplied) {
		t.Errorf("Acquire beside locks and a mark: %+v, %v, want an error", res, err)
	}
	if err := s.listener().addWaiterMark(t.Context(), keyIn(t, s, "third")); !errors.Is(err, errMarksFull) {
		t.Errorf("a mark beside locks and a mark: %v, want an error", err)
	}
	if res := attempt(t, s, pgtest.Request("held", time.Minute)); res.Granted || res.Queued {
		t.Errorf("Acquire by a waiter that cannot have a mark: %+v, want neither granted nor queued", res)
	}
	release(t, s, waiter)
	pgtest.Eventually(t, "room", func() bool {
		res, err := s.Acquire(t.Context(), pgtest.Request("third", time.Minute))
		return err == nil && res.Granted
	})
}

// The key of a mark is the same in all versions.
func TestMarkKeys(t *testing.T) {
	t.Parallel()
	if got, want := Key64(42).waiterKey().String(), "-1508357787,-1556477637"; got != want {
		t.Errorf("the mark of 42 is %q, want %q, that of other versions", got, want)
	}
}
