//go:build unix

package advisory

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

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
	for _, owner := range []*engine{s, greedy} {
		owner.mu.Lock()
		var reqs []olddriver.AcquireRequest
		for _, leases := range owner.leases {
			for _, l := range leases {
				reqs = append(reqs, olddriver.AcquireRequest{Name: l.name, Owner: l.owner, TTL: time.Minute})
			}
		}
		owner.mu.Unlock()
		for _, req := range reqs {
			if renew(t, owner, req) != olddriver.Renewed || !release(t, owner, req) {
				t.Fatalf("%q is lost", req.Name)
			}
		}
	}
	grant(t, s, "again", time.Minute)
}

// fill takes locks until there is an error, which must say this.
func fill(t *testing.T, s *engine, prefix, says string) int {
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
func limitsAtServer(t *testing.T, s *engine) map[time.Duration]string {
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
// TTLs than sessions one bears with the longest.
func TestLimits(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.Postgres().Addr, keysOf(t))
	s.statements["holdfast_show"] = "SELECT concat_ws(' ', current_setting('idle_session_timeout'), current_setting('tcp_user_timeout'), current_setting('tcp_keepalives_idle'))"
	short := grant(t, s, "short", 20*time.Second)
	for i, ttl := range []time.Duration{20 * time.Second, time.Minute, time.Hour, 2 * time.Hour, 30 * time.Second, 3 * time.Hour} {
		grant(t, s, fmt.Sprint(i), ttl)
	}
	short.TTL = 61 * time.Minute
	if got := renew(t, s, short); got != olddriver.Renewed {
		t.Errorf("Renew with a longer TTL is answered %d, want Renewed", got)
	}
	want := map[time.Duration]string{
		61 * time.Minute: "61min 3660000 3660<nil>", time.Minute: "1min 60000 60<nil>",
		time.Hour: "1h 3600000 3600<nil>", 3 * time.Hour: "3h 10800000 10800<nil>",
	}
	if got := limitsAtServer(t, s); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the sessions have the limits %v, want %v", got, want)
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
	if got := renew(t, s, req); got != olddriver.Renewed {
		t.Errorf("Renew with the longest TTL is answered %d, want Renewed", got)
	}
	for _, limit := range limitsAtServer(t, s) {
		if limit != "24d<nil>" {
			t.Errorf("after a renewal the limit is %s, want 24d", limit)
		}
	}
}
