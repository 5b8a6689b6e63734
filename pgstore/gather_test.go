//go:build unix

package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// crowd has the releases of a store gather until the function that it returns is
// called.
func crowd(t *testing.T, s *Store) (disperse func()) {
	t.Helper()
	s.leaving.patience = time.Hour
	var leaves []func()
	for range gatherFrom {
		l, leave := s.leaving.enter("", "")
		if l != nil {
			t.Fatal("a release has to wait while few are under way")
		}
		leaves = append(leaves, leave)
	}
	return func() {
		for _, leave := range leaves {
			leave()
		}
	}
}

// An end is what became of a release.
type end struct {
	ended bool
	err   error
}

// part begins a release that gathers with n others, and has gathered when part
// returns.
func part(ctx context.Context, t *testing.T, s *Store, n int, req driver.AcquireRequest) <-chan end {
	t.Helper()
	ends := make(chan end, 1)
	go func() {
		ended, err := s.Release(ctx, driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
		ends <- end{ended, err}
	}()
	eventually(t, "release that waits for others", func() bool { return gathered(s) > n })
	return ends
}

func gathered(s *Store) int {
	s.leaving.mu.Lock()
	defer s.leaving.mu.Unlock()
	return len(s.leaving.waiting)
}

func await(t *testing.T, ends <-chan end) end {
	t.Helper()
	select {
	case e := <-ends:
		return e
	case <-time.After(bound):
		t.Fatal("the release has not come to an end")
		return end{}
	}
}

// kinds are stores on pools of every kind that gather.
func kinds(t *testing.T) map[string]*Store {
	server := shared.postgres()
	all := map[string]*Store{
		"pgxpool":      New(openPoolAt(t, server.URL("postgres")), &Options{Schema: newSchema(t)}),
		"database/sql": NewDB(openSQL(t, server.URL("postgres")), &Options{Schema: newSchema(t)}),
		"serializable": New(openPoolAt(t, server.URL("postgres"), "default_transaction_isolation=serializable"), &Options{Schema: newSchema(t)}),
		"PgBouncer":    New(openPoolAt(t, shared.pgbouncer().URL("postgres")), &Options{Schema: newSchema(t), NoListen: true}),
	}
	for _, s := range all {
		t.Cleanup(func() { _ = s.Close() })
	}
	return all
}

// Each of those that go together gets its own answer, also if it does not hold
// the name, or another has released it by the same request.
func TestReleasesGoTogether(t *testing.T) {
	t.Parallel()
	for what, s := range kinds(t) {
		a, b, c := grant(t, s, "a", time.Minute), grant(t, s, "b", time.Minute), grant(t, s, `c"\{,`, time.Minute)
		thief := b
		thief.Owner = "thief"
		s.plain.Store(false) // Then even through a pooler they gather, once.
		disperse := crowd(t, s)
		var ends []<-chan end
		for i, req := range []driver.AcquireRequest{thief, c, a, c} {
			ends = append(ends, part(t.Context(), t, s, i, req))
		}
		disperse()
		var got []bool
		for _, e := range ends {
			e := await(t, e)
			if e.err != nil {
				t.Errorf("%s: %v", what, e.err)
			}
			got = append(got, e.ended)
		}
		if got[0] || !got[2] || got[1] == got[3] {
			t.Errorf("%s: %v, want false for who does not hold it, and true once for each who does", what, got)
		}
		refuse(t, s, "b")
		grant(t, s, "a", time.Minute)
		grant(t, s, c.Name, time.Minute)
	}
}

// Those that go together are one statement, and it is known then that the names
// are free.
func TestReleasesTogetherAreOneStatement(t *testing.T) {
	t.Parallel()
	s, sent := traced(t, &Options{})
	const holds = 50
	disperse := crowd(t, s)
	var ends []<-chan end
	for i := range holds {
		ends = append(ends, part(t.Context(), t, s, i, grant(t, s, fmt.Sprint("hold/", i), time.Minute)))
	}
	sent.Store(0)
	disperse()
	for _, e := range ends {
		if e := await(t, e); e.err != nil || !e.ended {
			t.Errorf("Release: %v, %v", e.ended, e.err)
		}
	}
	if n := sent.Swap(0); n != 1 {
		t.Errorf("%d releases were %d statements, want 1", holds, n)
	}
	grant(t, s, "hold/1", time.Minute)
	if n := sent.Swap(0); n != 1 {
		t.Errorf("an acquisition after it was %d statements, want 1", n)
	}
}

// A row that somebody has locked holds up its own release, and no other that goes
// together with it.
func TestReleasesBesideLockedRow(t *testing.T) {
	t.Parallel()
	s := open(t, "pool_max_conns=4")
	a, b, c := grant(t, s, "a", time.Minute), grant(t, s, "b", time.Minute), grant(t, s, "c", time.Minute)
	unlock := lockAnyRow(t, s, "b")
	disperse := crowd(t, s)
	stuck := part(t.Context(), t, s, 0, b)
	ends := []<-chan end{part(t.Context(), t, s, 1, a), part(t.Context(), t, s, 2, c)}
	disperse()
	for _, e := range ends {
		if e := await(t, e); e.err != nil || !e.ended {
			t.Errorf("Release beside a locked row: %v, %v", e.ended, e.err)
		}
	}
	select {
	case e := <-stuck:
		t.Errorf("Release of a locked row: %v, %v, want it to wait", e.ended, e.err)
	default:
	}
	unlock()
	if e := await(t, stuck); e.err != nil || !e.ended {
		t.Errorf("Release of a row that was locked: %v, %v", e.ended, e.err)
	}
}

// Releases that wait for locked rows hold up the others for a moment only.
func TestReleasesBehindLockedRows(t *testing.T) {
	t.Parallel()
	s := open(t, "pool_max_conns=12")
	other := grant(t, s, "other", time.Minute)
	var held []driver.AcquireRequest
	for i := range gatherFrom {
		held = append(held, grant(t, s, fmt.Sprint("locked/", i), time.Minute))
		lockAnyRow(t, s, held[i].Name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for _, req := range held {
		group.Go(func() { _, _ = s.Release(ctx, driver.ReleaseRequest{Name: req.Name, Owner: req.Owner}) })
	}
	defer group.Wait()
	defer cancel()
	eventually(t, "releases that wait for rows", func() bool {
		var n int
		query(t, s, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'",
			[]any{s.statement("@schema@")}, &n)
		return n == gatherFrom
	})
	limited, done := context.WithTimeout(t.Context(), bound)
	defer done()
	if ended, err := s.Release(limited, driver.ReleaseRequest{Name: other.Name, Owner: other.Owner}); err != nil || !ended {
		t.Errorf("Release behind locked rows: %v, %v", ended, err)
	}
}

// What holds nobody up: a release that keeps the name, and one that is durable,
// go at once.
func TestReleasesThatGoAlone(t *testing.T) {
	t.Parallel()
	s := open(t)
	durable := New(s.pool.(pgxPool).Pool, &Options{Schema: s.options.Schema, DurableRelease: true})
	t.Cleanup(func() { _ = durable.Close() })
	crowd(t, s)
	crowd(t, durable)
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	a, b := grant(t, s, "a", time.Minute), grant(t, s, "b", time.Minute)
	if ended, err := s.Release(ctx, driver.ReleaseRequest{Name: a.Name, Owner: a.Owner, Keep: time.Minute}); err != nil || !ended {
		t.Errorf("Release with Keep: %v, %v", ended, err)
	}
	if rec := refuse(t, s, "a"); !rec.Kept {
		t.Errorf("a name that is to be kept is %+v", rec)
	}
	if ended, err := durable.Release(ctx, driver.ReleaseRequest{Name: b.Name, Owner: b.Owner}); err != nil || !ended {
		t.Errorf("durable Release: %v, %v", ended, err)
	}
}

// The lost answer to a batch is neither a loss nor a proof that nothing was done,
// for each of its releases.
func TestLostAnswerToReleases(t *testing.T) {
	t.Parallel()
	s, proxy := proxied(t, newSchema(t), "default_query_exec_mode=exec")
	reqs := []driver.AcquireRequest{grant(t, s, "a", time.Minute), grant(t, s, "b", time.Minute), request("c", time.Minute)}
	disperse := crowd(t, s)
	var ends []<-chan end
	for i, req := range reqs {
		ends = append(ends, part(t.Context(), t, s, i, req))
	}
	proxy.LoseReply(isStatement)
	disperse()
	for i, e := range ends {
		if e := await(t, e); e.err == nil || driver.NotApplied(e.err) {
			t.Errorf("Release without an answer: %v, want an error that leaves it open", e.err)
		}
		if release(t, s, reqs[i]) {
			t.Error("the Release sent again reports a hold")
		}
	}
}

// A release that cannot be carried out costs those that go with it nothing.
func TestReleaseThatSpoilsTheBatch(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := grant(t, s, "a", time.Minute)
	disperse := crowd(t, s)
	bad, good := part(t.Context(), t, s, 0, request("\x00", time.Minute)), part(t.Context(), t, s, 1, a)
	disperse()
	if e := await(t, bad); !errors.Is(e.err, driver.ErrInvalid) {
		t.Errorf("Release of a name with a NUL: %v, want ErrInvalid", e.err)
	}
	if e := await(t, good); e.err != nil || !e.ended {
		t.Errorf("Release beside it: %v, %v", e.ended, e.err)
	}
}

// Who waits for a name is told of a release that went together with others.
func TestReleasesTogetherAreTold(t *testing.T) {
	t.Parallel()
	s := open(t)
	other := openIn(t, s.options.Schema)
	a := grant(t, s, "a", time.Minute)
	woken, err := other.Watch(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	disperse := crowd(t, s)
	e := part(t.Context(), t, s, 0, a)
	disperse()
	if e := await(t, e); e.err != nil || !e.ended {
		t.Errorf("Release: %v, %v", e.ended, e.err)
	}
	select {
	case <-woken:
	case <-time.After(bound):
		t.Error("no wake-up")
	}
}

// A batch that hangs holds up the next for a moment only.
func TestHungBatch(t *testing.T) {
	t.Parallel()
	var g gatherer
	hung, sent := make(chan struct{}), make(chan int, 2)
	var sending sync.WaitGroup
	g.init(func(batch []*leaver) error {
		sent <- len(batch)
		<-hung
		return nil
	}, func(f func()) bool {
		sending.Go(f)
		return true
	})
	defer sending.Wait()
	defer close(hung)
	var leaves []func()
	for range gatherFrom {
		_, leave := g.enter("", "")
		leaves = append(leaves, leave)
	}
	for range 2 {
		g.enter("name", "owner")
		for _, leave := range leaves {
			leave()
		}
		leaves = nil
		select {
		case <-sent:
		case <-time.After(bound):
			t.Fatal("no batch is sent while another hangs")
		}
	}
}

// Whatever the pool is and however many release at once, every release ends a
// hold.
func TestManyReleasesAtOnce(t *testing.T) {
	t.Parallel()
	for what, s := range kinds(t) {
		var group sync.WaitGroup
		for g := range 24 {
			group.Go(func() {
				for range 10 {
					req := request(fmt.Sprint("name/", g), time.Minute)
					if res, err := s.Acquire(t.Context(), req); err != nil || !res.Granted {
						t.Errorf("%s: Acquire: %+v, %v", what, res, err)
					}
					if ended, err := s.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner}); err != nil || !ended {
						t.Errorf("%s: Release: %v, %v", what, ended, err)
					}
				}
			})
		}
		group.Wait()
	}
}
