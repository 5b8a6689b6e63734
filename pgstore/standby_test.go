//go:build unix

package pgstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// What is promised of a failover: with a synchronous standby every lock that was
// granted is on the standby, held, with its token, even if it was released at
// last. Without, a lock may be forgotten: its token still is lower than that of
// the next.
func TestPromotion(t *testing.T) {
	t.Parallel()
	primary := servers.StartPostgres(t)
	migrated(t, primary.URL("postgres"), nil)
	safe, fast := openAt(t, primary.URL("postgres")), openAt(t, primary.URL("postgres"), "synchronous_commit=local")

	release(t, fast, grant(t, fast, "name", time.Hour))
	standby := servers.StartPostgresStandby(t, primary, "standby")
	pgtest.Execute(t, primary.URL("postgres"), "ALTER SYSTEM SET synchronous_standby_names = 'standby'")
	pgtest.Execute(t, primary.URL("postgres"), "SELECT pg_reload_conf()")
	pgtest.Eventually(t, "synchronous standby", func() bool {
		var n int
		query(t, fast, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'", nil, &n)
		return n == 1
	})
	var requests []olddriver.AcquireRequest
	var tokens []int64
	for _, name := range []string{"a", "b", "c"} {
		req, token := grantToken(t, safe, name, time.Hour)
		requests, tokens = append(requests, req), append(tokens, token)
	}

	reader := newPoolEngine(pgtest.OpenPool(t, standby.URL("postgres")), nil)
	t.Cleanup(func() { _ = reader.Close() })
	fails(t, reader, driver.ErrNotApplied, "connect to the primary", "Acquire", "Renew", "Release", "Break")

	// The standby no longer follows. What waits for it is not granted; what does
	// not is, and is forgotten.
	pgtest.Execute(t, standby.URL("postgres"), "ALTER SYSTEM SET primary_conninfo = ''")
	pgtest.Execute(t, standby.URL("postgres"), "SELECT pg_reload_conf()")
	pgtest.Eventually(t, "end of the replication", func() bool {
		var n int
		query(t, fast, "SELECT count(*) FROM pg_stat_replication", nil, &n)
		return n == 0
	})
	_, forgotten := grantToken(t, fast, "forgotten", time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // time enough to send it
	defer cancel()
	if res, err := safe.Acquire(ctx, pgtest.Request("unconfirmed", time.Hour)); err == nil || driver.IsNotApplied(err) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Acquire that no standby confirms: %+v, %v, want it unknown", res, err)
	}
	releaseUnconfirmed(t, safe, requests[1], 0)
	releaseUnconfirmed(t, safe, requests[2], time.Hour)

	primary.Kill()
	standby.Promote()
	after := newPoolEngine(pgtest.OpenPool(t, standby.URL("postgres")), nil)
	t.Cleanup(func() { _ = after.Close() })
	for i, req := range requests {
		if rec := refuse(t, after, req.Name); rec.Token != tokens[i] {
			t.Errorf("after the promotion the token is %d, was %d", rec.Token, tokens[i])
		}
	}
	if got := renew(t, after, requests...); got[0] != olddriver.Renewed || got[1] != olddriver.Renewed || got[2] != olddriver.Renewed {
		t.Errorf("Renew after the promotion: %v", got)
	}
	if _, token := grantToken(t, after, "forgotten", time.Hour); token <= forgotten {
		t.Errorf("a lock that was forgotten is granted again with the token %d, after %d", token, forgotten)
	}
}

// releaseUnconfirmed releases a lock while no standby confirms it: that does not
// wait, unless it keeps the name.
func releaseUnconfirmed(t *testing.T, s *engine, req olddriver.AcquireRequest, keep time.Duration) {
	t.Helper()
	patience := pgtest.Bound
	if keep > 0 {
		patience = 100 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ended, err := s.Release(ctx, olddriver.ReleaseRequest{Name: req.Name, Owner: req.Owner, Keep: keep})
	if done := ended && err == nil; keep == 0 && !done || keep > 0 && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Release with Keep %v that no standby confirms: %v, %v", keep, ended, err)
	}
}
