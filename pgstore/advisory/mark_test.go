//go:build unix

package advisory

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// marksOf is how many sessions have the mark of a name.
func marksOf(t *testing.T, s *Store, name string) int {
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

// The look for a mark may find the lock table full. The key is unlocked then, and
// nothing else on the session is in doubt.
func TestWaiterCheckWithoutRoom(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.Postgres().Addr, keysOf(t))
	bystander := grant(t, s, "bystander", time.Minute)
	grant(t, s, "name", time.Minute)
	key := keyIn(t, s, "name")
	notified := listenAsWaiter(t, key)
	c := s.leases[key][0]
	unlocked := make(chan error, 1)
	s.sessions[0].sendStatement(c.unlockKeyStatement(func(_ []byte, err error) { unlocked <- err }))
	if err := <-unlocked; err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	c.state, c.done = leaseUnlocking, make(chan struct{})
	s.mu.Unlock()
	s.onUnlocked(c, nil, &pgconn.PgError{Code: lockTableFull})
	if !notified(pgtest.Bound) {
		t.Error("a release that may have waiters did not notify")
	}
	if got := renew(t, s, bystander); got != driver.Renewed {
		t.Errorf("Renew of a lock beside it is answered %d, want Renewed", got)
	}
	grant(t, s, "name", time.Minute)
}

// A mark is refused while somebody looks for it, which does not last, or by a
// program that has the same key.
func TestMarkRefused(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.Postgres().Addr, keysOf(t))
	mark := keyIn(t, s, "name").waiterKey()
	conn, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_lock("+mark.sqlLiteral()+")"); err != nil {
		t.Fatal(err)
	}
	grant(t, s, "name", time.Minute)
	if res := attempt(t, s, pgtest.Request("name", time.Minute)); res.Granted || res.Queued {
		t.Errorf("Acquire by a waiter that cannot have a mark: %+v, want neither granted nor queued", res)
	}
	pgtest.Eventually(t, "connection that listens", func() bool { return s.listener() != nil })
	if err := s.listener().addWaiterMark(t.Context(), keyIn(t, s, "name")); !errors.Is(err, errMarkRefused) {
		t.Errorf("a mark that cannot be had: %v, want errMarkRefused", err)
	}
	listens := s.listener()
	_, before := listens.session.progress(time.Now())
	got := make(chan driver.AcquireResult, 1)
	go func() { got <- attempt(t, s, pgtest.Request("name", time.Minute)) }()
	pgtest.Eventually(t, "refused mark", func() bool { _, sent := listens.session.progress(time.Now()); return sent > before })
	if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_unlock("+mark.sqlLiteral()+")"); err != nil {
		t.Fatal(err)
	}
	if res := <-got; !res.Queued {
		t.Errorf("Acquire by a waiter with a mark that can be had a moment later: %+v, want it queued", res)
	}
}

// Marks are pairs with a negative first integer, each of its own.
func TestMarkKeys(t *testing.T) {
	t.Parallel()
	seen := map[Key]Key{}
	for i := range int64(1000) {
		for _, key := range []Key{Key64(i), Key2x32(int32(i>>4), int32(i&15)), Key2x32(int32(-i-1), 0)} {
			mark := key.waiterKey()
			if !mark.pair || mark.bits >= 0 {
				t.Fatalf("the mark of %v is %v", key, mark)
			}
			if other, taken := seen[mark]; taken && other != key {
				t.Fatalf("%v and %v share a mark", key, other)
			}
			seen[mark] = key
		}
	}
	if got, want := Key64(42).waiterKey().String(), "-1508357787,-1556477637"; got != want {
		t.Errorf("the mark of 42 is %q, want %q, that of other versions", got, want)
	}
}
