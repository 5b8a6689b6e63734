//go:build unix

package pgstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// blockers are the changes, as *rowChange, at which a queue stops for the function stored.
var blockers sync.Map

// crowd makes the changes of a store gather until the function that it returns is called. They then
// go together, with one more that does nothing.
func crowd(t *testing.T, s *engine) (disperse func()) {
	t.Helper()
	q := s.batches
	if q.Solo > 0 { // the first crowd of this store
		q.Solo, q.StuckAfter, q.Bound = 0, time.Hour, time.Hour
		q.Send = func(_ context.Context, _ time.Time, changes []*rowChange) {
			if block, ok := blockers.Load(changes[0]); ok {
				block.(func())()
				return
			}
			s.sendChanges(time.Now().Add(batchTimeout), changes)
		}
	}
	sending, hold, first := make(chan struct{}), make(chan struct{}), &rowChange{}
	blockers.Store(first, func() {
		close(sending)
		<-hold
	})
	var group sync.WaitGroup
	group.Go(func() { _ = q.Do(context.Background(), first) })
	pgtest.Signaled(t, sending)
	group.Go(func() { _ = q.Do(context.Background(), &rowChange{name: "nobody's", owner: "nobody"}) })
	pgtest.Eventually(t, "change that waits", func() bool { return q.Waiting() == 1 })
	disperse = sync.OnceFunc(func() { close(hold) })
	t.Cleanup(func() {
		disperse()
		group.Wait()
	})
	return disperse
}

// An end is what became of a release.
type end struct {
	ended bool
	err   error
}

// part begins a release that gathers with n others, and has gathered when part
// returns.
func part(ctx context.Context, t *testing.T, s *engine, n int, req olddriver.AcquireRequest) <-chan end {
	t.Helper()
	ends := make(chan end, 1)
	go func() {
		ended, err := s.Release(ctx, olddriver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
		ends <- end{ended, err}
	}()
	pgtest.Eventually(t, "release that waits for others", func() bool { return gathered(s) > n })
	return ends
}

// gathered returns how many changes wait, besides that of crowd.
func gathered(s *engine) int { return s.batches.Waiting() - 1 }

func await(t *testing.T, ends <-chan end) end {
	t.Helper()
	select {
	case e := <-ends:
		return e
	case <-time.After(pgtest.Bound):
		t.Fatal("the release has not come to an end")
		return end{}
	}
}

// kinds are stores on pools of every kind that gather.
func kinds(t *testing.T) map[string]*engine {
	server := pgtest.Postgres()
	all := map[string]*engine{
		"pgxpool":      newPoolEngine(pgtest.OpenPool(t, server.URL("postgres")), &Options{Schema: newSchema(t)}),
		"database/sql": newDBEngine(pgtest.OpenSQL(t, server.URL("postgres")), &Options{Schema: newSchema(t)}),
		"serializable": newPoolEngine(pgtest.OpenPool(t, server.URL("postgres"), "default_transaction_isolation=serializable"), &Options{Schema: newSchema(t)}),
		"PgBouncer":    newPoolEngine(pgtest.OpenPool(t, pgtest.PgBouncer().URL("postgres")), &Options{Schema: newSchema(t), NoListen: true}),
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
		s.unprepared.Store(false) // Then even through a pooler they gather, once.
		disperse := crowd(t, s)
		var ends []<-chan end
		for i, req := range []olddriver.AcquireRequest{thief, c, a, c} {
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
	var held []olddriver.AcquireRequest
	for i := range maxUnbatched {
		held = append(held, grant(t, s, fmt.Sprint("locked/", i), time.Minute))
		lockAnyRow(t, s, held[i].Name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for _, req := range held {
		group.Go(func() { _, _ = s.Release(ctx, olddriver.ReleaseRequest{Name: req.Name, Owner: req.Owner}) })
	}
	defer group.Wait()
	defer cancel()
	pgtest.Eventually(t, "releases that wait for rows", func() bool {
		var n int
		query(t, s, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'",
			[]any{s.expandSQL("@schema@")}, &n)
		return n == maxUnbatched
	})
	limited, done := context.WithTimeout(t.Context(), pgtest.Bound)
	defer done()
	if ended, err := s.Release(limited, olddriver.ReleaseRequest{Name: other.Name, Owner: other.Owner}); err != nil || !ended {
		t.Errorf("Release behind locked rows: %v, %v", ended, err)
	}
}

// The lost answer to a batch is neither a loss nor a proof that nothing was done,
// for each of its releases.
func TestLostAnswerToReleases(t *testing.T) {
	t.Parallel()
	s, proxy := proxied(t, newSchema(t), "default_query_exec_mode=exec")
	reqs := []olddriver.AcquireRequest{grant(t, s, "a", time.Minute), grant(t, s, "b", time.Minute), pgtest.Request("c", time.Minute)}
	disperse := crowd(t, s)
	var ends []<-chan end
	for i, req := range reqs {
		ends = append(ends, part(t.Context(), t, s, i, req))
	}
	proxy.LoseReply(isStatement)
	disperse()
	for i, e := range ends {
		if e := await(t, e); e.err == nil || driver.IsNotApplied(e.err) {
			t.Errorf("Release without an answer: %v, want an error that leaves it open", e.err)
		}
		if release(t, s, reqs[i]) {
			t.Error("the Release sent again reports a hold")
		}
	}
}

// acquirePart begins an acquisition that gathers with n other changes, and has gathered when
// acquirePart returns.
func acquirePart(t *testing.T, s *engine, n int, req olddriver.AcquireRequest) <-chan acquired {
	t.Helper()
	results := make(chan acquired, 1)
	go func() {
		res, err := s.Acquire(t.Context(), req)
		results <- acquired{res, err}
	}()
	pgtest.Eventually(t, "acquisition that waits for others", func() bool { return gathered(s) > n })
	return results
}

type acquired struct {
	olddriver.AcquireResult
	err error
}

func awaitAcquired(t *testing.T, results <-chan acquired) acquired {
	t.Helper()
	select {
	case res := <-results:
		return res
	case <-time.After(pgtest.Bound):
		t.Fatal("the acquisition has not come to an end")
		return acquired{}
	}
}

// knownFree makes rows of names, which the store knows to be free, and returns their tokens.
func knownFree(t *testing.T, s *engine, names ...string) map[string]int64 {
	t.Helper()
	tokens := map[string]int64{}
	for _, name := range names {
		req, token := grantToken(t, s, name, time.Minute)
		release(t, s, req)
		tokens[name] = token
	}
	return tokens
}

func TestChangesTogetherHaveOneCommit(t *testing.T) {
	t.Parallel()
	s := open(t)
	knownFree(t, s, "a", "b", "c")
	held := grant(t, s, "held", time.Minute)
	disperse := crowd(t, s)
	ended := part(t.Context(), t, s, 0, held)
	var results []<-chan acquired
	for i, name := range []string{"a", "b", "c"} {
		results = append(results, acquirePart(t, s, i+1, pgtest.Request(name, time.Minute)))
	}
	disperse()
	await(t, ended)
	for _, result := range results {
		if res := awaitAcquired(t, result); res.err != nil || !res.Granted {
			t.Errorf("Acquire: %+v", res)
		}
	}
	var transactions int
	query(t, s, "SELECT count(DISTINCT xmin::text) FROM @table@", nil, &transactions)
	if transactions != 1 {
		t.Errorf("the changes were %d transactions, want 1", transactions)
	}
}

// A row that somebody has locked, or that is held, delays no other acquisition of a batch. Of two
// acquisitions of one name one is granted.
func TestAcquisitionsBesideRowsInTheWay(t *testing.T) {
	t.Parallel()
	s := open(t)
	knownFree(t, s, "free", "locked", "held", "gone", "twice")
	change(t, s, "DELETE FROM @table@ WHERE lock_name = 'gone'")
	change(t, s, "UPDATE @table@ SET holder_id = 'x', holder = 'x', expires_at = now() + interval '1 hour' WHERE lock_name = 'held'")
	unlock := lockAnyRow(t, s, "locked")
	defer unlock()
	disperse := crowd(t, s)
	names := []string{"free", "locked", "held", "gone", "twice", "twice"}
	var results []<-chan acquired
	for i, name := range names {
		results = append(results, acquirePart(t, s, i, pgtest.Request(name, time.Minute)))
	}
	disperse()
	granted := map[string]int{}
	for i, result := range results {
		res := awaitAcquired(t, result)
		if later := (*driver.RetryError)(nil); (res.err != nil) != (names[i] == "locked") || res.err != nil && !errors.As(res.err, &later) {
			t.Errorf("Acquire of %q: %v", names[i], res.err)
		}
		if res.Granted {
			granted[names[i]]++
		} else if res.err == nil && res.Held.Holder == "" {
			t.Errorf("Acquire of %q is refused without a holder", names[i])
		}
	}
	if want := map[string]int{"free": 1, "gone": 1, "twice": 1}; !maps.Equal(granted, want) {
		t.Errorf("granted are %v, want %v", granted, want)
	}
}

// A release that undoes an acquisition of the same batch follows it.
func TestReleaseFollowsItsAcquisitionInABatch(t *testing.T) {
	t.Parallel()
	s := open(t)
	knownFree(t, s, "name")
	req := pgtest.Request("name", time.Minute)
	disperse := crowd(t, s)
	result := acquirePart(t, s, 0, req)
	ended := part(t.Context(), t, s, 1, req)
	disperse()
	if res := awaitAcquired(t, result); res.err != nil || !res.Granted {
		t.Errorf("Acquire: %+v", res)
	}
	if e := await(t, ended); e.err != nil || !e.ended {
		t.Errorf("Release: %v, %v, want the hold ended", e.ended, e.err)
	}
	grant(t, s, "name", time.Minute)
}

// A floor too far above the clock is refused in a batch as well, and raises no token.
func TestFloorInABatch(t *testing.T) {
	t.Parallel()
	s := open(t)
	knownFree(t, s, "far", "near")
	far, near := pgtest.Request("far", time.Minute), pgtest.Request("near", time.Minute)
	far.Floor = time.Now().Add(2 * driver.MaxLead).UnixMicro()
	near.Floor = time.Now().Add(driver.MaxLead / 2).UnixMicro()
	disperse := crowd(t, s)
	farResult, nearResult := acquirePart(t, s, 0, far), acquirePart(t, s, 1, near)
	disperse()
	if res := awaitAcquired(t, farResult); !errors.Is(res.err, driver.ErrInvalid) {
		t.Errorf("Acquire with a floor too far ahead: %+v, want ErrInvalid", res)
	}
	if res := awaitAcquired(t, nearResult); res.err != nil || res.Token < near.Floor {
		t.Errorf("Acquire with a floor of %d: %+v", near.Floor, res)
	}
	if _, token := grantToken(t, s, "far", time.Minute); token >= far.Floor {
		t.Errorf("the token after a refused floor is %d, as far ahead", token)
	}
}

// The lost answer to a batch leaves each of its acquisitions open, and each of their owners finds
// what was granted.
func TestLostAnswerToAcquisitions(t *testing.T) {
	t.Parallel()
	s, proxy := proxied(t, newSchema(t), "default_query_exec_mode=exec")
	knownFree(t, s, "a", "b")
	held := grant(t, s, "held", time.Minute)
	reqs := []olddriver.AcquireRequest{pgtest.Request("a", time.Minute), pgtest.Request("b", time.Minute)}
	disperse := crowd(t, s)
	ended := part(t.Context(), t, s, 0, held)
	results := []<-chan acquired{acquirePart(t, s, 1, reqs[0]), acquirePart(t, s, 2, reqs[1])}
	proxy.LoseReply(isStatement)
	disperse()
	if e := await(t, ended); e.err == nil || driver.IsNotApplied(e.err) {
		t.Errorf("Release without an answer: %v, want an error that leaves it open", e.err)
	}
	for i, result := range results {
		if res := awaitAcquired(t, result); res.err == nil || driver.IsNotApplied(res.err) {
			t.Errorf("Acquire without an answer: %+v, want an error that leaves it open", res)
		}
		if !release(t, s, reqs[i]) {
			t.Error("the owner of a lost grant finds no hold")
		}
	}
}
