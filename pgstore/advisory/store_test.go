//go:build unix

package advisory

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/storecheck"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// Locks shows who holds and who waits, by whatever program.
func TestLocks(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	opts := keysOf(t)
	s := open(t, server.Addr, opts)
	grant(t, s, "name", time.Minute)
	key, _ := opts.Keys.of("name")
	stranger := pgtest.OpenPool(t, server.URL("postgres"), "application_name=stranger")
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		_, _ = stranger.Exec(ctx, "SELECT pg_advisory_lock_shared("+key+")") // It is canceled.
	}()
	pgtest.Eventually(t, "waiter", func() bool { return waiterOf(t, s) != 0 })
	found := locksOn(t, s, "name")
	holder, waiting := found[0], found[1]
	if !holder.Granted || holder.Shared || holder.PID != sessionsOf(s)[0] || !strings.HasPrefix(holder.Application, "holdfast ") || len(holder.BlockedBy) != 0 {
		t.Errorf("the holder is shown as %+v", holder)
	}
	if waiting.Granted || !waiting.Shared || waiting.Application != "stranger" || waiting.Since.IsZero() || waiting.Connected.IsZero() ||
		len(waiting.BlockedBy) != 1 || waiting.BlockedBy[0] != holder.PID {
		t.Errorf("the waiter is shown as %+v", waiting)
	}
	cancel()
	<-waited
}

// Tokens rise over the loss of their sequence, also for a session that has drawn from it before.
func TestSequenceLost(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	opts := keysOf(t)
	opts.TokenSequence = "public.Lost Tokens"
	stays := open(t, server.Addr, opts)
	var last int64
	for range 3 {
		s := open(t, server.Addr, opts)
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, s := range []*Store{stays, s} {
			req, token := pgtest.Grant(t, s, "name", time.Minute)
			if token <= last {
				t.Errorf("Acquire gives the token %d, want one above %d", token, last)
			}
			last = token
			release(t, s, req)
		}
		pgtest.Execute(t, server.URL("postgres"), `DROP SEQUENCE public."Lost Tokens"`)
	}
	s := open(t, server.Addr, opts)
	for _, kind := range []string{"CACHE 2", "INCREMENT -1", "CYCLE", "AS smallint"} {
		pgtest.Execute(t, server.URL("postgres"), `CREATE SEQUENCE public."Lost Tokens" `+kind)
		if err := s.Migrate(t.Context()); err != nil {
			t.Errorf("Migrate with a sequence that has %s: %v", kind, err)
		}
		if rises := pgtest.QueryValue[bool](t, s.pool, `SELECT seqincrement = 1 AND seqcache = 1 AND NOT seqcycle AND seqmax = $1
			FROM pg_sequence WHERE seqrelid = 'public."Lost Tokens"'::regclass`, int64(driver.MaxToken)); !rises {
			t.Errorf("Migrate leaves a sequence that has %s", kind)
		}
		pgtest.Execute(t, server.URL("postgres"), `DROP SEQUENCE public."Lost Tokens"`)
	}
	_, err := s.Acquire(t.Context(), pgtest.Request("name", time.Minute))
	if !errors.Is(err, driver.ErrNotApplied) || !strings.Contains(err.Error(), "Migrate") {
		t.Errorf("Acquire without the sequence: %v, want it to say Migrate", err)
	}
}

// A statement that is refused, or waits for a sequence that is altered, fails the attempts of its
// batch, which give back what they have. It costs no hold, and no release.
func TestFailedAfterLock(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	opts := keysOf(t)
	opts.TokenSequence = "holdfast_failing"
	s, other := open(t, server.Addr, opts), open(t, server.Addr, keysOf(t))
	pgtest.Execute(t, server.URL("postgres"), "DROP SEQUENCE IF EXISTS holdfast_failing") // of a run before
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	kept, before, behind := grant(t, s, "kept", time.Minute), grant(t, s, "before", time.Minute), grant(t, s, "behind", time.Minute)
	altering := pgtest.Begin(t, other.pool)
	if _, err := altering.Exec(t.Context(), "ALTER SEQUENCE holdfast_failing CACHE 1"); err != nil {
		t.Fatal(err)
	}
	var later *driver.RetryError
	if res, err := s.Acquire(t.Context(), pgtest.Request("name", time.Minute)); !errors.As(err, &later) {
		t.Errorf("Acquire while the sequence is altered: %+v, %v, want a RetryError", res, err)
	}
	if err := altering.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	pgtest.Execute(t, server.URL("postgres"), "SELECT setval('holdfast_failing', 9007199254740990)")
	releases := []*call{unlocking(s, before), unlocking(s, behind)}
	attempts := []*call{attempt(t, s, "granted"), attempt(t, s, "name"), attempt(t, s, "name"), attempt(t, s, "last")}
	s.sessions[0].send(t.Context(), []*call{releases[0], attempts[0], attempts[1], releases[1], attempts[2], attempts[3]})
	for _, c := range releases {
		if !c.done || c.err != nil {
			t.Errorf("Release of %q: %v, %v", c.entry.name, c.done, c.err)
		}
	}
	for _, c := range attempts {
		if c.done || !driver.IsNotApplied(c.err) {
			t.Errorf("Acquire of %q when no token is left gives %v, %v, want an error", c.entry.name, c.done, c.err)
		}
	}
	for _, name := range []string{"before", "behind", "granted", "name", "last"} {
		grant(t, other, name, time.Minute)
	}
	if got := stateOf(t, s, kept); got != driver.Held {
		t.Errorf("Renew of a hold beside them: %v, want held", got)
	}
	refused(t, other, kept.Name)
}

// attempt returns the call of an Acquire.
func attempt(t *testing.T, s *Store, name string) *call {
	key, _ := s.options.Keys.of(name)
	e := &entry{owned: owned{name, rand.Text()}, key: key, ttl: time.Minute}
	if err := s.enter(e); err != nil {
		t.Fatal(err)
	}
	return &call{function: try, entry: e, ttl: time.Minute}
}

// unlocking returns the call of a Release.
func unlocking(s *Store, req driver.Request) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &call{function: unlock, entry: s.owners[owned{req.Name, req.Owner}]}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	fails(t, open(t, pgtest.Postgres().Addr, &Options{Keys: Keys{Raw: true}}), driver.ErrInvalid, "name", "Acquire")
	fails(t, New(nil, nil), driver.ErrInvalid, "nil", "Acquire")
	fails(t, open(t, "127.0.0.1:1", nil), driver.ErrNotApplied, "127.0.0.1:1", "Acquire")
}

func TestURLs(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		"postgres+advisory://": true,
		"postgres+advisory://user:SecretWord@host:1234/db?sslmode=disable": true,
		"postgres+advisory://host/db?keys=raw&tokens=app.tokens":           true,
		"postgres+advisory://host/db?namespace=x&max_waiters=10":           true,
		"postgres+advisory://host/db?keys=SecretWord":                      false,
		"postgres+advisory://host/db?keys=raw&namespace=x":                 false,
		"postgres+advisory://host/db?max_waiters=SecretWord":               false,
		"postgres+advisory://host/db?max_wiaters=SecretWord":               false,
		"postgres+advisory://user:SecretWord@host:notaport/db":             false,
		"postgres+advisory:SecretWord":                                     false,
		"postgres+advisory://host/db#SecretWord":                           false,
	} {
		storecheck.Opens(t, text, good)
	}
}

// No more than MaxWaiters sessions wait; one that has got its lock is used again.
func TestMaxWaiters(t *testing.T) {
	t.Parallel()
	opts := keysOf(t)
	opts.MaxWaiters = 1
	s := open(t, pgtest.Postgres().Addr, opts)
	for range 3 {
		h := grant(t, s, "name", time.Minute)
		waiter := queue(t, s, "name")
		told := noticesOf(t, s, waiter.Owner)
		began := time.Now()
		files, err := s.Connections()
		if err != nil || len(files) != 1 || time.Since(began) > lockTimeout/2 {
			t.Errorf("beside a waiter: %d connections, %v, after %v, want that with the lock", len(files), err, time.Since(began))
		}
		for _, f := range files {
			f.Close()
		}
		further := pgtest.Request("name", time.Minute)
		further.Place = time.Minute
		if res, err := s.Acquire(t.Context(), further); err != nil || res.Granted || res.Waiting {
			t.Errorf("a second waiter: %+v, %v, want it to have no place", res, err)
		}
		release(t, s, h)
		pgtest.Signaled(t, told)
		if got := stateOf(t, s, waiter); got != driver.Held {
			t.Errorf("the waiter that was told is %v, want held", got)
		}
		refused(t, s, "name")
		release(t, s, waiter)
	}
	grant(t, s, "name", time.Minute)
	pgtest.Wait(t, s, "name", 50*time.Millisecond)
	pgtest.Eventually(t, "place for another, when that is over", func() bool {
		further := pgtest.Request("name", time.Minute)
		further.Place = time.Minute
		res, err := s.Acquire(t.Context(), further)
		return err == nil && res.Waiting
	})
}
