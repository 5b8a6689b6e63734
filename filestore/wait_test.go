package filestore

import (
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/holdfast-go/holdfast/driver"
)

// told returns a channel with the times of the notices to an owner.
func told(tb testing.TB, s *Store, owner string) <-chan time.Time {
	tb.Helper()
	times := make(chan time.Time, 100)
	tb.Cleanup(s.Notify(func(_, to string, _ int64) {
		if to == owner {
			times <- time.Now()
		}
	}))
	return times
}

// within checks that a notice comes soon.
func within(t *testing.T, what string, limit time.Duration, times <-chan time.Time) {
	t.Helper()
	began := time.Now()
	select {
	case at := <-times:
		if took := at.Sub(began); took > limit {
			t.Errorf("%s is told after %v", what, took)
		}
	case <-time.After(20 * time.Second):
		t.Errorf("%s is not told", what)
	}
}

// waiting makes an owner wait, and returns its request.
func waiting(t *testing.T, s *Store, req driver.Request) driver.Request {
	t.Helper()
	req.Place = time.Hour
	res, err := s.Acquire(t.Context(), req)
	if err != nil || !res.Waiting {
		t.Fatalf("it does not wait: %+v, %v", res, err)
	}
	return req
}

// The death of a holder leads to a notice for the first waiter, a Break to one for the owner of the
// hold, and the turn of a waiter far behind to one for it, in other processes too.
func TestTold(t *testing.T) {
	const limit = 500 * time.Millisecond // 100 ms on a machine that has nothing else to do
	dir := t.TempDir()
	c := start(t, command("hold", dir, "name", "1h"))
	c.number()
	first := openTest(t, dir)
	req := waiting(t, first, request("name", time.Hour))
	notices := told(t, first, req.Owner)
	c.kill()
	within(t, "the death of the holder", limit, notices)
	now, err := first.Renew(t.Context(), []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: time.Hour}})
	if err != nil || now[0].State != driver.Held {
		t.Fatal(now, err)
	}

	var stores []*Store
	var reqs []driver.Request
	for range 2 * near {
		s := openTest(t, dir)
		stores = append(stores, s)
		reqs = append(reqs, waiting(t, s, request("name", time.Hour)))
	}
	if _, err := stores[0].Break(t.Context(), "name", now[0].Token); err != nil {
		t.Fatal(err)
	}
	within(t, "the break of a hold", limit, notices)
	last := len(stores) - 1
	notices = told(t, stores[last], reqs[last].Owner)
	for i, s := range stores[:last] {
		released(t, s, reqs[i])
	}
	within(t, "the turn of one far behind", limit, notices)
}

// The end of one of several holds leads to a notice for the first waiter. So does the death of one
// of several processes, and the end of a waiter before it.
func TestToldOfOneOfSeveral(t *testing.T) {
	const limit = 500 * time.Millisecond
	dir := t.TempDir()
	s, other := openTest(t, dir), openTest(t, dir)
	several := func(limit int) driver.Request {
		req := request("name", time.Hour)
		req.Limit = limit
		return req
	}
	held := func(req driver.Request, want driver.State) {
		t.Helper()
		now, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: "name", Owner: req.Owner, TTL: time.Hour}})
		if err != nil || now[0].State != want {
			t.Fatalf("%v, %v; want %v", now, err, want)
		}
	}
	goes, _ := grantedTo(t, other, several(3))
	grantedTo(t, other, several(3))
	dies := start(t, command("hold", dir, "name", "1h", "", "3"))
	dies.number()

	first, second := waiting(t, s, several(3)), waiting(t, s, several(3))
	notices := told(t, s, first.Owner)
	released(t, other, goes)
	within(t, "the end of one of several", limit, notices)
	held(first, driver.Held)
	held(second, driver.Waiting)
	notices = told(t, s, second.Owner)
	dies.kill()
	within(t, "the death of one of several", limit, notices)
	held(second, driver.Held)

	writer := waiting(t, other, several(0))
	reader := waiting(t, s, several(driver.Shared))
	if _, err := s.Break(t.Context(), "name", 0); err != nil {
		t.Fatal(err)
	}
	held(reader, driver.Waiting)
	notices = told(t, s, reader.Owner)
	released(t, other, writer)
	within(t, "the end of the writer", limit, notices)
	held(reader, driver.Held)

	dies = start(t, command("hold", dir, "name", "1h"))
	dies.number()
	reader = waiting(t, s, several(driver.Shared))
	notices = told(t, s, reader.Owner)
	dies.kill()
	within(t, "the death of a waiting writer", limit, notices)
	held(reader, driver.Held)
}

// idle reports whether a Store knows of no entry of its own, and watches nothing.
func (s *Store) idle() bool {
	own := s.folder.session.Load()
	own.mu.Lock()
	defer own.mu.Unlock()
	return len(own.entries) == 0 && own.watcher.Load() == nil
}

// A Store forgets its entries at their ends, and closes its watcher when it has none: there are few
// of them in a system. Then it looks at nothing, until it has an entry.
func TestIdleStore(t *testing.T) {
	s := openTest(t, t.TempDir())
	held, _ := granted(t, openTest(t, s.dir), "name", time.Hour)
	place := request("name", time.Hour)
	place.Place = 50 * time.Millisecond
	if res, err := s.Acquire(t.Context(), place); err != nil || !res.Waiting {
		t.Fatal(res, err)
	}
	eventually(t, "the Store forgets the place", s.idle)
	place = waiting(t, s, request("name", time.Hour))
	notices := told(t, s, place.Owner)
	eventually(t, "the place is watched", func() bool { return s.folder.session.Load().watcher.Load() != nil })
	released(t, openTest(t, s.dir), held)
	within(t, "the next place", time.Second, notices)
	released(t, s, place)
	eventually(t, "the Store closes its watcher", s.idle)

	kept, _ := granted(t, s, "kept", time.Hour)
	if ok, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "kept", Owner: kept.Owner, Keep: time.Hour}); err != nil || !ok {
		t.Fatal(ok, err)
	}
	eventually(t, "the Store forgets what it has kept", s.idle)

	other, own := openTest(t, s.dir), s.folder.session.Load()
	for round := range 5 {
		if round == 3 { // with a place far behind, at which it looks seldom
			granted(t, other, "far", time.Hour)
			for range 100 {
				waiting(t, other, request("far", time.Hour))
			}
			waiting(t, s, request("far", time.Hour))
		}
		eventually(t, "the Store rests", func() bool {
			own.mu.Lock()
			defer own.mu.Unlock()
			return own.rests
		})
		held, _ := granted(t, s, "name", time.Hour)
		notices := told(t, s, held.Owner)
		if _, err := other.Break(t.Context(), "name", 0); err != nil {
			t.Fatal(err)
		}
		within(t, "the break of a hold after a rest", time.Second/2, notices)
		if err := release(s, held); err == nil {
			t.Error("a broken hold is released")
		}
	}
}

// When the kernel says that it has dropped events, all owners are to look.
func TestDroppedEvents(t *testing.T) {
	s := openTest(t, t.TempDir())
	granted(t, openTest(t, s.dir), "name", time.Hour)
	waiting(t, s, request("name", time.Hour))
	looks := told(t, s, "")
	eventually(t, "it watches", func() bool { return s.folder.session.Load().watcher.Load() != nil })
	s.folder.session.Load().watcher.Load().Errors <- fsnotify.ErrEventOverflow
	within(t, "whoever has an entry", time.Second, looks)
}
