//go:build unix

package advisory

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// manyLocks is how many TestManyLocks takes, unless the environment says
// otherwise: the server looks through all locks of a session at the end of each
// of its statements, so that 10,000 take 25 times as long.
const manyLocks = 2_000

// Thousands of locks live on one connection, and one statement renews them.
func TestManyLocks(t *testing.T) {
	t.Parallel()
	locks, lanes := manyLocks, 32
	if text := os.Getenv("HOLDFAST_LOCKS"); text != "" {
		var err error
		if locks, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	server := servers.StartPostgres(t, "fsync=off", "max_locks_per_transaction=512", "max_connections=40")
	s := open(t, server.Addr, nil)
	reqs := make([]driver.AcquireRequest, locks)
	began := time.Now()
	var group sync.WaitGroup
	for lane := range lanes {
		group.Go(func() {
			for i := lane; i < locks; i += lanes {
				reqs[i] = pgtest.Request(fmt.Sprint("name/", i), 10*time.Minute)
				if res, err := s.Acquire(t.Context(), reqs[i]); err != nil || !res.Granted {
					t.Errorf("Acquire: %+v, %v", res, err)
				}
			}
		})
	}
	group.Wait()
	t.Logf("%d locks were taken in %v", locks, time.Since(began))
	count := "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
	if n := pgtest.QueryValue[int](t, s.pool, count); n != locks {
		t.Errorf("the server has %d locks, want %d", n, locks)
	}
	if n := len(sessionsOf(s)); n != 1 {
		t.Errorf("they are on %d connections, want 1", n)
	}
	began = time.Now()
	outcomes, err := s.Renew(t.Context(), pgtest.Renewals(reqs...))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d renewals took %v", locks, time.Since(began))
	for i, outcome := range outcomes {
		if outcome != driver.Renewed {
			t.Fatalf("outcome %d is %d, want Renewed", i, outcome)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	direct := pgtest.OpenPool(t, server.URL("postgres"))
	if n := pgtest.QueryValue[int](t, direct, count); n != 0 {
		t.Errorf("after Close the server has %d locks", n)
	}
}

// The store stops before it fills the lock table of the server, and when others
// have filled it, nothing that is held is lost.
func TestLockTable(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t, "fsync=off", "max_locks_per_transaction=10", "max_connections=10")
	s := open(t, server.Addr, nil)
	taken := fill(t, s, "mine", "MaxLocks")
	if taken != 50 {
		t.Errorf("the store held %d locks before it stopped, want half of 10 * 10", taken)
	}
	greedy := open(t, server.Addr, &Options{MaxLocks: 1_000_000})
	others := fill(t, greedy, "others", "max_locks_per_transaction")
	t.Logf("the server has room for %d locks, by its settings 100", taken+others)
	for _, owner := range []*Store{s, greedy} {
		owner.mu.Lock()
		var reqs []driver.AcquireRequest
		for _, leases := range owner.leases {
			for _, l := range leases {
				reqs = append(reqs, driver.AcquireRequest{Name: l.name, Owner: l.owner, TTL: time.Minute})
			}
		}
		owner.mu.Unlock()
		for _, req := range reqs {
			if renew(t, owner, req) != driver.Renewed || !release(t, owner, req) {
				t.Fatalf("%q is lost", req.Name)
			}
		}
	}
	grant(t, s, "again", time.Minute)
}

// fill takes locks until there is an error, which must say this.
func fill(t *testing.T, s *Store, prefix, says string) int {
	t.Helper()
	for n := 0; ; n++ {
		res, err := s.Acquire(t.Context(), pgtest.Request(fmt.Sprint(prefix, n), time.Minute))
		if err == nil && res.Granted {
			continue
		}
		if res.Granted || !errors.Is(err, driver.ErrNotApplied) || !strings.Contains(err.Error(), says) {
			t.Fatalf("Acquire with %d locks held: %+v, %v, want an error that says %q", n, res, err, says)
		}
		return n
	}
}

// limitsAtServer are the limits of the sessions of a store as they stand at the
// server, by what the store believes.
func limitsAtServer(t *testing.T, s *Store) map[time.Duration]string {
	t.Helper()
	s.mu.Lock()
	sessions := s.sessions
	s.mu.Unlock()
	limits := map[time.Duration]string{}
	for _, sess := range sessions {
		s.mu.Lock()
		limit := sess.idleTimeout
		s.mu.Unlock()
		answer := make(chan string, 1)
		sess.sendStatement(statement{name: "holdfast_show", done: func(value []byte, err error) { answer <- fmt.Sprint(string(value), err) }})
		limits[limit] = <-answer
	}
	return limits
}

// Each TTL has a session that the server ends after just that silence; with more
// TTLs than connections a session bears with the longest.
func TestLimits(t *testing.T) {
	t.Parallel()
	opts := keysOf(t)
	opts.MaxConns = 2
	s := open(t, pgtest.Postgres().Addr, opts)
	s.statements["holdfast_show"] = "SELECT concat_ws(' ', current_setting('idle_session_timeout'), current_setting('tcp_user_timeout'), current_setting('tcp_keepalives_idle'))"
	expect := func(want map[time.Duration]string) {
		t.Helper()
		got := limitsAtServer(t, s)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the sessions have the limits %v, want %v", got, want)
		}
	}
	short := grant(t, s, "short", 20*time.Second)
	grant(t, s, "as short", 20*time.Second)
	expect(map[time.Duration]string{20 * time.Second: "20s 20000 20<nil>"})
	grant(t, s, "long", time.Minute)
	expect(map[time.Duration]string{20 * time.Second: "20s 20000 20<nil>", time.Minute: "1min 60000 60<nil>"})
	grant(t, s, "between", 30*time.Second)
	expect(map[time.Duration]string{20 * time.Second: "20s 20000 20<nil>", time.Minute: "1min 60000 60<nil>"})
	grant(t, s, "longest", time.Hour)
	expect(map[time.Duration]string{20 * time.Second: "20s 20000 20<nil>", time.Hour: "1h 3600000 3600<nil>"})
	short.TTL = time.Hour + time.Minute
	if got := renew(t, s, short); got != driver.Renewed {
		t.Errorf("Renew with a longer TTL is answered %d, want Renewed", got)
	}
	expect(map[time.Duration]string{time.Hour + time.Minute: "61min 3660000 3660<nil>", time.Hour: "1h 3600000 3600<nil>"})
	if n := len(sessionsOf(s)); n != 2 {
		t.Errorf("there are %d connections, want 2", n)
	}
}

// The server ends a silent session however long the TTL is: it counts no more than
// 24 days.
func TestLongestLimit(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.Postgres().Addr, keysOf(t))
	s.statements["holdfast_show"] = "SELECT current_setting('idle_session_timeout')"
	grant(t, s, "name", driver.MaxTTL)
	if got := fmt.Sprint(limitsAtServer(t, s)); got != fmt.Sprint(map[time.Duration]string{driver.MaxTTL: "24d<nil>"}) {
		t.Errorf("a session with a lock of %v has the limit %v, want 24d", driver.MaxTTL, got)
	}
	req := grant(t, s, "other", time.Hour)
	req.TTL = driver.MaxTTL
	if got := renew(t, s, req); got != driver.Renewed {
		t.Errorf("Renew with the longest TTL is answered %d, want Renewed", got)
	}
	for _, limit := range limitsAtServer(t, s) {
		if limit != "24d<nil>" {
			t.Errorf("after a renewal the limit is %s, want 24d", limit)
		}
	}
}

// A hold that is not renewed ends at its TTL, and its session goes on.
func TestExpiry(t *testing.T) {
	t.Parallel()
	opts := keysOf(t)
	opts.MaxConns = 1
	s, other := open(t, pgtest.Postgres().Addr, opts), open(t, pgtest.Postgres().Addr, opts)
	s.Notify(func(n driver.Notice) { t.Errorf("notice of %q: %+v, want none", n.Name, n) })
	bystander := grant(t, s, "bystander", time.Hour)
	const ttl = 200 * time.Millisecond
	began := time.Now()
	req := grant(t, s, "name", ttl)
	if took := takes(t, other, "name").Sub(began); took < ttl {
		t.Errorf("a lock with a TTL of %v was to be had after %v", ttl, took)
	}
	if got := renew(t, s, req); got != driver.RenewLost {
		t.Errorf("Renew of a hold that has run out is answered %d, want RenewLost", got)
	}
	if renew(t, s, bystander) != driver.Renewed || !release(t, s, bystander) {
		t.Error("another hold has ended as well")
	}
}

// A connection without locks is given up in good order, and its end is no loss.
func TestEmptyConnection(t *testing.T) {
	t.Parallel()
	var ways ways
	s := ways.open(t, pgtest.Postgres().Addr, keysOf(t))
	var farewell atomic.Bool
	ways.through(s).LoseRequest(func(request []byte) bool {
		if request[0] == 'X' {
			farewell.Store(true)
		}
		return false
	})
	s.Notify(func(n driver.Notice) { t.Errorf("notice of %q: %+v, want none", n.Name, n) })
	release(t, s, grant(t, s, "name", time.Second))
	pgtest.Eventually(t, "farewell", farewell.Load)
	release(t, s, grant(t, s, "name", time.Hour))
}

// However many acquire at once on a store that has no connection yet, it makes
// as many connections and takes as many locks as it may.
func TestBurst(t *testing.T) {
	t.Parallel()
	opts := keysOf(t)
	opts.MaxConns, opts.MaxLocks = 2, 10
	s := open(t, pgtest.Postgres().Addr, opts)
	var granted, refused atomic.Int32
	var group sync.WaitGroup
	for i := range 100 {
		group.Go(func() {
			res, err := s.Acquire(t.Context(), pgtest.Request(fmt.Sprint(i), time.Duration(1+i%8)*time.Hour))
			switch {
			case err == nil && res.Granted:
				granted.Add(1)
			case errors.Is(err, driver.ErrNotApplied):
				refused.Add(1)
			default:
				t.Errorf("Acquire: %+v, %v", res, err)
			}
		})
	}
	group.Wait()
	if granted.Load() != 10 || refused.Load() != 90 || len(sessionsOf(s)) > 2 {
		t.Errorf("%d were granted and %d refused, on %d connections, want 10 and 90 on 2", granted.Load(), refused.Load(), len(sessionsOf(s)))
	}
}
