//go:build unix

package pgstore

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// lazyServer is a server that brings what no commit waits for to the disk ten seconds later, and so
// loses it in a crash.
func lazyServer(t *testing.T) *servers.Postgres {
	t.Helper()
	server := servers.StartPostgres(t, "wal_writer_delay=10s", "autovacuum=off")
	migrate(t, server.URL("postgres"), nil)
	return server
}

// crash kills a server and starts it again, until it answers.
func crash(t *testing.T, server *servers.Postgres, s *Store) {
	t.Helper()
	server.Restart()
	pgtest.Eventually(t, "answer of the server", func() bool {
		_, err := s.Lookup(t.Context(), "name")
		return err == nil
	})
}

// rounds is how often a proof is repeated: n times, or TEST_ROUNDS.
func rounds(n int) int {
	if wanted, err := strconv.Atoi(os.Getenv("TEST_ROUNDS")); err == nil {
		return wanted
	}
	return n
}

// Everything waits for the disk but a plain release and what concerns places alone, through every
// kind of pool, and the connection is afterwards as it was before.
func TestWhatWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	const passes = 5
	server := lazyServer(t)
	bouncer := servers.StartPgBouncer(t, server)
	stores := map[string]*Store{
		"pgxpool":      New(pgtest.OpenPool(t, server.URL("postgres"), "pool_max_conns=1"), nil),
		"database/sql": NewDB(pgtest.OpenSQL(t, server.URL("postgres")), nil),
		"PgBouncer":    New(pgtest.OpenPool(t, bouncer.URL("postgres")), nil),
	}
	for what, s := range stores {
		t.Cleanup(func() { _ = s.Close() })
		s.listening.Do(func() {}) // Nothing listens, and so nothing else commits.
		req := request("name", time.Hour)
		var places [3]driver.Request
		for i := range places {
			places[i] = request("name", time.Hour)
			places[i].Place = time.Hour
		}
		acquire := func(req driver.Request) func() {
			return func() {
				if _, err := s.Acquire(t.Context(), req); err != nil {
					t.Fatal(err)
				}
			}
		}
		end := func(req driver.Request, keep time.Duration) func() {
			return func() {
				if ended, err := s.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner, Keep: keep}); err != nil || !ended {
					t.Fatalf("Release: %v, %v", ended, err)
				}
			}
		}
		expires := func() {
			value[bool](t, s, "UPDATE @.locks SET expires = clock_timestamp() WHERE name = 'name' RETURNING true")
		}
		steps := []struct {
			what string
			lazy bool
			do   func()
		}{
			{"Acquire", false, acquire(req)},
			{"Renew", false, func() { state(t, s, req) }},
			{"Acquire of a place", true, acquire(places[0])},
			{"Acquire of another", true, acquire(places[1])},
			{"Renew of a place", true, func() { state(t, s, places[1]) }},
			{"UPDATE", false, expires},
			{"Renew that admits the other", false, func() { state(t, s, places[1]) }},
			{"UPDATE again", false, expires},
			{"Acquire of a place that admits", false, acquire(places[2])},
			{"Release that admits", false, end(places[1], 0)},
			{"Release", true, end(places[2], 0)},
			{"Acquire again", false, acquire(req)},
			{"Release with Keep", false, end(req, time.Hour)},
			{"Break of a keep", false, func() { value[int32](t, s, "SELECT cardinality(held) FROM @.break_holds('name', 0)") }},
			{"acquire_lock", false, func() { value[bool](t, s, "SELECT @.acquire_lock('name', 'worker')") }},
			{"release_lock", false, func() { value[bool](t, s, "SELECT @.release_lock('name', 'worker')") }},
		}
		waited := make([]int, len(steps))
		for range passes {
			for i, step := range steps {
				before := value[string](t, s, "SELECT pg_current_wal_insert_lsn()::text")
				step.do()
				if value[bool](t, s, "SELECT pg_current_wal_flush_lsn() > $1::text::pg_lsn", before) {
					waited[i]++
				}
				if level := value[string](t, s, "SELECT current_setting('synchronous_commit')"); level != "on" {
					t.Errorf("%s: the connection is left with synchronous_commit %q", step.what, level)
				}
			}
		}
		for i, step := range steps {
			// Now and then the server brings everything to the disk by itself.
			if step.lazy && waited[i] == passes || !step.lazy && waited[i] < passes {
				t.Errorf("%s: %s was on the disk %d times in %d", what, step.what, waited[i], passes)
			}
		}
	}
}

// After a crash of the server every hold is there, with its token, and so is every keep, every
// break, and every admission, even the last thing that the server did; places are gone, all at
// once. Tokens go on rising. A plain release may be undone, until another has been granted the
// lock.
func TestCrash(t *testing.T) {
	t.Parallel()
	server := lazyServer(t)
	s := openAt(t, server.URL("postgres"))
	for range rounds(1) {
		held, token := grant(t, s, "held", time.Hour)
		crash(t, server, s)
		if rec := refuse(t, s, "held"); rec.Token != token || state(t, s, held) != driver.Held {
			t.Errorf("after a crash the hold with the token %d is %v", token, rec)
		}
		waiter, gone := wait(t, s, "held", time.Hour), wait(t, s, "held", time.Hour)
		release(t, s, held)
		crash(t, server, s)
		if rec := refuse(t, s, "held"); rec.Token <= token || state(t, s, waiter) != driver.Held {
			t.Errorf("after a crash the hold of a waiter that was admitted is %v", rec)
		}
		if got := state(t, s, gone); got != driver.Lost {
			t.Errorf("after a crash a place is %v", got)
		}
		if ended, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "held", Owner: waiter.Owner, Keep: time.Hour}); err != nil || !ended {
			t.Fatal(ended, err)
		}
		crash(t, server, s)
		if rec := refuse(t, s, "held"); !rec.Kept {
			t.Errorf("after a crash a name that was kept is %+v", rec)
		}
		if ended, err := s.Break(t.Context(), "held", 0); err != nil || len(ended) != 1 {
			t.Fatal(ended, err)
		}
		crash(t, server, s)
		last, next := grant(t, s, "held", time.Hour)
		if next <= token {
			t.Errorf("the token %d after a crash, and %d before", next, token)
		}
		if value[bool](t, s, "SELECT others FROM @.locks WHERE name = 'held'") {
			t.Error("after a crash the name goes on as if others waited")
		}
		release(t, s, last)
		crash(t, server, s)
		records, err := s.Lookup(t.Context(), "held")
		if err != nil || len(records) > 0 && (records[0].Token != next || records[0].Kept) {
			t.Errorf("a release that was undone leaves %v, %v, want the hold with the token %d", records, err, next)
		}
		release(t, s, last) // again, as nobody does, instead of waiting for its TTL
		after, higher := grant(t, s, "held", time.Hour)
		crash(t, server, s)
		if higher <= next || state(t, s, after) != driver.Held || state(t, s, last) != driver.Lost {
			t.Errorf("a crash has undone the grant of the token %d after a release, and %d before", higher, next)
		}
		release(t, s, after)
	}
}

// What is promised of a failover: with a synchronous standby every lock that was granted is on the
// standby, held, with its token, even if it was released at last. Without, a lock may be forgotten:
// its token still is lower than that of the next.
func TestPromotion(t *testing.T) {
	t.Parallel()
	primary := servers.StartPostgres(t)
	migrate(t, primary.URL("postgres"), nil)
	safe, fast := openAt(t, primary.URL("postgres")), openAt(t, primary.URL("postgres"), "synchronous_commit=local")
	standby := servers.StartPostgresStandby(t, primary, "standby")
	pgtest.Execute(t, primary.URL("postgres"), "ALTER SYSTEM SET synchronous_standby_names = 'standby'")
	pgtest.Execute(t, primary.URL("postgres"), "SELECT pg_reload_conf()")
	pgtest.Eventually(t, "synchronous standby", func() bool {
		return value[int64](t, fast, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == 1
	})
	kept, keptToken := grant(t, safe, "kept", time.Hour)
	released, _ := grant(t, safe, "released", time.Hour)
	fails(t, openAt(t, standby.URL("postgres")), driver.ErrNotApplied, "connect to the primary", "Acquire", "Renew", "Release", "Break")

	// The standby no longer follows. What waits for it is not granted; what does not is, and is
	// forgotten.
	pgtest.Execute(t, standby.URL("postgres"), "ALTER SYSTEM SET primary_conninfo = ''")
	pgtest.Execute(t, standby.URL("postgres"), "SELECT pg_reload_conf()")
	pgtest.Eventually(t, "end of the replication", func() bool {
		return value[int64](t, fast, "SELECT count(*) FROM pg_stat_replication") == 0
	})
	_, forgotten := grant(t, fast, "forgotten", time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // time enough to send it
	defer cancel()
	if res, err := safe.Acquire(ctx, request("unconfirmed", time.Hour)); err == nil || driver.IsNotApplied(err) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Acquire that no standby confirms: %+v, %v, want it unknown", res, err)
	}
	if !release(t, safe, released) {
		t.Error("a release waits for the standby")
	}
	primary.Kill()
	standby.Promote()
	after := openAt(t, standby.URL("postgres"))
	if rec := refuse(t, after, "kept"); rec.Token != keptToken || state(t, after, kept) != driver.Held || state(t, after, released) != driver.Held {
		t.Errorf("after the promotion the lock with the token %d is %v", keptToken, rec)
	}
	if _, token := grant(t, after, "forgotten", time.Hour); token <= forgotten {
		t.Errorf("a lock that was forgotten is granted again with the token %d, after %d", token, forgotten)
	}
}

// An address may move to a standby that was promoted, while connections to the old primary stay
// open and are read-only: no lock is lost whose TTL outlasts it.
func TestAddressMoves(t *testing.T) {
	t.Parallel()
	primary := servers.StartPostgres(t)
	migrate(t, primary.URL("postgres"), nil)
	standby := servers.StartPostgresStandby(t, primary, "standby")
	proxy := faultproxy.Start(t, standby.Addr)
	s := openAt(t, strings.Replace(primary.URL("postgres"), primary.Addr, proxy.Addr(), 1), "pool_max_conns=3")
	fails(t, s, driver.ErrNotApplied, "connect to the primary", "Acquire", "Lookup")
	proxy.SetTarget(primary.Addr)
	if _, err := s.Lookup(t.Context(), "name"); err != nil {
		t.Errorf("Lookup when the address has left a standby: %v", err)
	}
	locks := holdfast.New(s, nil)
	t.Cleanup(func() { _ = locks.Close() })
	looks := make(chan struct{}, 10)
	defer s.Notify(func(name, _ string, _ int64) {
		if name == "" {
			looks <- struct{}{}
		}
	})()
	lock, err := locks.Acquire(t.Context(), "name", &holdfast.Options{TTL: 6 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Signaled(t, looks) // It listens.
	pgtest.Eventually(t, "standby that has it", func() bool {
		return value[int64](t, s, "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_lsn()") == 1
	})
	pgtest.Execute(t, primary.URL("postgres"), "ALTER SYSTEM SET default_transaction_read_only = on")
	pgtest.Execute(t, primary.URL("postgres"), "SELECT pg_reload_conf()")
	standby.Promote()
	proxy.SetTarget(standby.Addr)
	select {
	case <-lock.Context().Done():
		t.Errorf("the lock is lost: %v", lock.Err())
	case <-time.After(9 * time.Second):
	}
	select {
	case <-looks:
	case <-time.After(time.Minute):
		t.Error("the store goes on listening to the old primary")
	}
	if rec := refuse(t, openAt(t, standby.URL("postgres")), "name"); rec.Token != lock.Token() {
		t.Errorf("on the new primary the lock is %v", rec)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}
