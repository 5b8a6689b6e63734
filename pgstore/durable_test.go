//go:build unix

package pgstore

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// lazyServer is a server that brings what no commit waits for to the disk ten
// seconds later, and so loses it in a crash.
func lazyServer(t *testing.T) *servers.Postgres {
	t.Helper()
	server := servers.StartPostgres(t, "wal_writer_delay=10s", "autovacuum=off")
	migrated(t, server.URL("postgres"), nil)
	return server
}

// Everything waits for the disk but a plain release, through every kind of
// pool, and the connection is afterwards as it was before.
func TestWhatWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	const passes = 5
	server := lazyServer(t)
	bouncer := servers.StartPgBouncer(t, server)
	pool := pgtest.OpenPool(t, server.URL("postgres"), "pool_max_conns=1")
	stores := map[string]*engine{
		"pgxpool":      newPoolEngine(pool, nil),
		"database/sql": newDBEngine(pgtest.OpenSQL(t, server.URL("postgres")), nil),
		"PgBouncer":    newPoolEngine(pgtest.OpenPool(t, bouncer.URL("postgres")), &Options{NoListen: true}),
		"unprepared":   newPoolEngine(pool, nil),
	}
	stores["unprepared"].unprepared.Store(true)
	for what, s := range stores {
		t.Cleanup(func() { _ = s.Close() })
		steps := life(t, s)
		waited := make([]int, len(steps))
		for range passes {
			for i, step := range steps {
				if flushes(t, s, step.do) {
					waited[i]++
				}
			}
		}
		for i, step := range steps {
			// Now and then the server brings everything to the disk by itself.
			lazy := step.what == "Release" || step.what == "Release with others"
			if lazy && waited[i] == passes || !lazy && waited[i] < passes {
				t.Errorf("%s: %s was on the disk %d times in %d", what, step.what, waited[i], passes)
			}
		}
	}
}

// A step is a change of a lock.
type step struct {
	what string
	do   func()
}

// life is all that can happen to a lock, in order. It may be repeated.
func life(t *testing.T, s *engine) []step {
	req := pgtest.Request("name", time.Hour)
	hold := func() {
		t.Helper()
		if res, err := s.Acquire(t.Context(), req); err != nil || !res.Granted {
			t.Fatalf("Acquire: %+v, %v, want it granted", res, err)
		}
	}
	byHand := func() {
		t.Helper()
		var ended bool
		query(t, s, "SELECT @release_lock@($1, $2)", []any{req.Name, req.Owner}, &ended)
		if !ended {
			t.Fatal("release_lock: false, want true")
		}
	}
	broken := func() {
		t.Helper()
		if _, found, err := s.Break(t.Context(), olddriver.BreakRequest{Name: req.Name}); err != nil || !found {
			t.Fatalf("Break: %v, %v, want it done", found, err)
		}
	}
	together := func() {
		t.Helper()
		disperse := crowd(t, s)
		ends := make(chan end, 1)
		go func() {
			ended, err := s.Release(t.Context(), olddriver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
			ends <- end{ended, err}
		}()
		pgtest.Eventually(t, "release", func() bool { return gathered(s)+len(ends) > 0 })
		disperse()
		if e := await(t, ends); e.err != nil || !e.ended {
			t.Errorf("Release: %v, %v", e.ended, e.err)
		}
	}
	return []step{
		{"Acquire before it", hold},
		{"Release with others", together},
		{"Acquire", hold},
		{"Renew", func() { renew(t, s, req) }},
		{"Release", func() { keep(t, s, req, 0) }},
		{"Acquire of what was released", hold},
		{"Release with Keep", func() { keep(t, s, req, time.Hour) }},
		{"Break of a keep", broken},
		{"Acquire of what was broken", hold},
		{"Break", broken},
		{"Acquire for another language", hold},
		{"release_lock", byHand},
	}
}

// A batch waits for the disk if there is an acquisition in it.
func TestBatchesThatWaitForTheDisk(t *testing.T) {
	t.Parallel()
	const passes = 5
	s := newPoolEngine(pgtest.OpenPool(t, lazyServer(t).URL("postgres"), "pool_max_conns=1"), nil)
	t.Cleanup(func() { _ = s.Close() })
	batches := map[string]int{"releases": 0, "acquisitions": 0, "both": 0}
	for range passes {
		for what := range batches {
			knownFree(t, s, "a", "b")
			held := []olddriver.AcquireRequest{grant(t, s, "c", time.Hour), grant(t, s, "d", time.Hour)}
			var releases, acquires []*rowChange
			for i, name := range []string{"a", "b"} {
				req := pgtest.Request(name, time.Millisecond)
				if what != "acquisitions" {
					releases = append(releases, &rowChange{name: held[i].Name, owner: held[i].Owner})
				}
				if what != "releases" {
					acquires = append(acquires, &rowChange{name: name, owner: req.Owner, acquire: &req, metadata: "{}"})
				}
			}
			if flushes(t, s, func() {
				if err := s.changeTogether(t.Context(), releases, acquires); err != nil {
					t.Fatal(err)
				}
			}) {
				batches[what]++
			}
			for _, change := range append(releases, acquires...) {
				if !change.applied {
					t.Fatalf("%s: the change of %q was not made", what, change.name)
				}
			}
			change(t, s, "UPDATE @table@ SET expires_at = 'epoch'")
		}
	}
	// Now and then the server brings everything to the disk by itself.
	if batches["releases"] == passes || batches["acquisitions"] < passes || batches["both"] < passes {
		t.Errorf("of %d batches were on the disk: %v", passes, batches)
	}
}

// flushes reports whether a change is on the disk when it is done, and sees to
// it that the connection is as it was before.
func flushes(t *testing.T, s *engine, change func()) bool {
	t.Helper()
	var before, level string
	var flushed bool
	query(t, s, "SELECT pg_current_wal_insert_lsn()::text", nil, &before)
	change()
	query(t, s, "SELECT pg_current_wal_flush_lsn() > $1::text::pg_lsn, current_setting('synchronous_commit')", []any{before}, &flushed, &level)
	if level != "on" {
		t.Errorf("the connection is left with synchronous_commit %q", level)
	}
	return flushed
}

// After a crash of the server every hold is there, with its token, and so is
// every keep and every break, even the last thing that the server did. Tokens go
// on rising.
func TestCrash(t *testing.T) {
	t.Parallel()
	server := lazyServer(t)
	s := openAt(t, server.URL("postgres"))
	crash := func() {
		t.Helper()
		server.Restart()
		pgtest.Eventually(t, "answer of the server", func() bool {
			_, _, err := s.Lookup(t.Context(), "name")
			return err == nil
		})
	}
	for range rounds(1) {
		held, token := grantToken(t, s, "held", time.Hour)
		crash()
		if rec := refuse(t, s, "held"); rec.Token != token {
			t.Errorf("after a crash the token is %d, was %d", rec.Token, token)
		}
		if got := renew(t, s, held); got[0] != olddriver.Renewed {
			t.Errorf("Renew after a crash: %v", got)
		}

		keep(t, s, held, time.Hour)
		crash()
		if rec := refuse(t, s, "held"); !rec.Kept {
			t.Errorf("after a crash a name that was kept is %+v", rec)
		}

		if _, found, err := s.Break(t.Context(), olddriver.BreakRequest{Name: "held"}); err != nil || !found {
			t.Fatalf("Break: %v, %v", found, err)
		}
		crash()
		if _, next := grantToken(t, s, "held", time.Hour); next <= token {
			t.Errorf("the token %d after a crash, and %d before", next, token)
		}
		if _, _, err := s.Break(t.Context(), olddriver.BreakRequest{Name: "held"}); err != nil {
			t.Fatal(err)
		}
	}
}

// A plain release that a crash has undone harms nobody: the lock is free, or
// held as before. Once another has been granted it, no crash undoes that.
func TestCrashAfterRelease(t *testing.T) {
	t.Parallel()
	server := lazyServer(t)
	s := openAt(t, server.URL("postgres"))
	for round := range rounds(1) {
		first, token := grantToken(t, s, "name", time.Hour)
		release(t, s, first)
		server.Restart()
		var rec olddriver.Record
		var held bool
		pgtest.Eventually(t, "answer of the server", func() (answered bool) {
			var err error
			rec, held, err = s.Lookup(t.Context(), "name")
			return err == nil
		})
		if held && (rec.Token != token || rec.Kept) {
			t.Errorf("a release that was undone leaves %+v, want the hold with the token %d", rec, token)
		}
		t.Logf("round %d: the release was undone: %v", round, held)
		release(t, s, first) // again, as nobody does, instead of waiting for its TTL

		next, higher := grantToken(t, s, "name", time.Hour)
		if higher <= token {
			t.Errorf("the token %d after a crash, and %d before", higher, token)
		}
		server.Restart()
		pgtest.Eventually(t, "answer of the server", func() bool {
			outcomes, err := s.Renew(t.Context(), pgtest.Renewals(next, first))
			return err == nil && outcomes[0] == olddriver.Renewed && outcomes[1] == olddriver.RenewLost
		})
		release(t, s, next)
	}
}

func keep(t *testing.T, s *engine, req olddriver.AcquireRequest, d time.Duration) {
	t.Helper()
	if ended, err := s.Release(t.Context(), olddriver.ReleaseRequest{Name: req.Name, Owner: req.Owner, Keep: d}); err != nil || !ended {
		t.Fatalf("Release of %q with Keep: %v, %v", req.Name, ended, err)
	}
}

// rounds is how often a proof is repeated: n times, or TEST_ROUNDS.
func rounds(n int) int {
	if wanted, err := strconv.Atoi(os.Getenv("TEST_ROUNDS")); err == nil {
		return wanted
	}
	return n
}
