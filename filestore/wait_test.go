package filestore

import (
	"testing"
	"time"

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

// isTold checks that a notice comes long before a hold ends by its time.
func isTold(t *testing.T, what string, notices <-chan time.Time) {
	t.Helper()
	select {
	case <-notices:
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
	dir := t.TempDir()
	c := start(t, command("hold", dir, "name", "1h"))
	c.number()
	first := openTest(t, dir)
	req := waiting(t, first, request("name", time.Hour))
	notices := told(t, first, req.Owner)
	c.kill()
	isTold(t, "the death of the holder", notices)
	renewedTo(t, first, req, driver.Held)

	var stores []*Store
	var reqs []driver.Request
	for range 32 {
		s := openTest(t, dir)
		stores = append(stores, s)
		reqs = append(reqs, waiting(t, s, request("name", time.Hour)))
	}
	if _, err := stores[0].Break(t.Context(), "name", 0); err != nil {
		t.Fatal(err)
	}
	isTold(t, "the break of a hold", notices)
	last := len(stores) - 1
	notices = told(t, stores[last], reqs[last].Owner)
	for i, s := range stores[1:last] {
		released(t, s, reqs[i+1])
	}
	renewedTo(t, stores[0], reqs[0], driver.Held)
	stores[0].die()
	isTold(t, "the death of the holder, to one that was far behind,", notices)
	renewedTo(t, stores[last], reqs[last], driver.Held)
}

// The end of one of several holds leads to a notice for the first waiter. So does the death of one
// of several processes, and the end of a waiter before it.
func TestToldOfOneOfSeveral(t *testing.T) {
	dir := t.TempDir()
	s, other := openTest(t, dir), openTest(t, dir)
	several := func(limit int) driver.Request {
		req := request("name", time.Hour)
		req.Limit = limit
		return req
	}
	held := func(req driver.Request, want driver.State) {
		t.Helper()
		renewedTo(t, s, req, want)
	}
	goes, _ := grantedTo(t, other, several(3))
	grantedTo(t, other, several(3))
	dies := start(t, command("hold", dir, "name", "1h", "3"))
	dies.number()

	first, second := waiting(t, s, several(3)), waiting(t, s, several(3))
	notices := told(t, s, first.Owner)
	released(t, other, goes)
	isTold(t, "the end of one of several", notices)
	held(first, driver.Held)
	notices = told(t, s, second.Owner) // which has not looked since
	dies.kill()
	isTold(t, "the death of one of several", notices)
	held(second, driver.Held)

	writer := waiting(t, other, several(0))
	reader := waiting(t, s, several(driver.Shared))
	if _, err := s.Break(t.Context(), "name", 0); err != nil {
		t.Fatal(err)
	}
	held(reader, driver.Waiting)
	notices = told(t, s, reader.Owner)
	released(t, other, writer)
	isTold(t, "the end of the writer", notices)
	held(reader, driver.Held)

	dies = start(t, command("hold", dir, "name", "1h"))
	dies.number()
	reader = waiting(t, s, several(driver.Shared))
	notices = told(t, s, reader.Owner)
	dies.kill()
	isTold(t, "the death of a waiting writer", notices)
	held(reader, driver.Held)
}

// renewedTo renews an entry, and checks what it is.
func renewedTo(tb testing.TB, s *Store, req driver.Request, want driver.State) {
	tb.Helper()
	now, err := s.Renew(tb.Context(), []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: req.TTL}})
	if err != nil || now[0].State != want {
		tb.Errorf("it is %v, %v; want %v", now, err, want)
	}
}

// A place is told to look when what it waits for has ended by its time, also if that was set nearer
// meanwhile, or if the place has come to the front.
func TestToldOfAnEnd(t *testing.T) {
	const ttl, limit = 2 * time.Second, 20 * time.Second
	for what, c := range map[string]struct {
		ttl     time.Duration
		happens func(holder, other *Store, hold, before driver.Request)
	}{
		"a hold":                  {ttl, func(_, other *Store, _, before driver.Request) { released(t, other, before) }},
		"a hold that was renewed": {ttl / 2, func(holder, _ *Store, hold, _ driver.Request) { renewedTo(t, holder, hold, driver.Held) }},
		"a hold, of one that hangs": {time.Hour, func(holder, _ *Store, hold, _ driver.Request) {
			released(t, holder, hold)
		}},
		"a keep": {time.Hour, func(holder, other *Store, hold, before driver.Request) {
			released(t, other, before)
			time.Sleep(1200 * time.Millisecond) // The look at what is before it now has been.
			_, _ = holder.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: hold.Owner, Keep: ttl})
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			holder, other, own := openTest(t, dir), openTest(t, dir), openTest(t, dir)
			hold, _ := granted(t, holder, "name", c.ttl)
			before := request("name", time.Hour)
			before.Place = ttl
			if res, err := other.Acquire(t.Context(), before); err != nil || !res.Waiting {
				t.Fatal(res, err)
			}
			place := waiting(t, own, request("name", time.Hour))
			c.happens(holder, other, hold, before)
			notices := told(t, own, place.Owner)
			until := time.Now().Add(limit)
			for held := false; !held; {
				select {
				case <-notices:
				case <-time.After(time.Until(until)):
					t.Fatal("it is not told in time")
				}
				now, err := own.Renew(t.Context(), []driver.RenewRequest{{Name: "name", Owner: place.Owner, TTL: time.Hour}})
				if err != nil {
					t.Fatal(err)
				}
				held = now[0].State == driver.Held
			}
		})
	}
}

// A dead waiter is nobody, also if its hold would have outlived its process.
func TestDeadDetachedWaiter(t *testing.T) {
	dir := t.TempDir()
	holder, dead, last := openTest(t, dir), openTest(t, dir), openTest(t, dir)
	granted(t, holder, "name", time.Hour)
	detached := request("name", time.Hour)
	detached.Detached = true
	waiting(t, dead, detached)
	place := waiting(t, last, request("name", time.Hour))
	notices := told(t, last, place.Owner)
	dead.die()
	holder.die()
	isTold(t, "the death of the holder", notices)
	renewedTo(t, last, place, driver.Held)
}

// The end of a hold gives the name to the first waiter that lives, without a look of that waiter.
func TestHandedOnPastTheDead(t *testing.T) {
	dir := t.TempDir()
	holder, dead, deadToo, last := openTest(t, dir), openTest(t, dir), openTest(t, dir), openTest(t, dir)
	last.lookStep = time.Hour
	hold, _ := granted(t, holder, "name", time.Hour)
	waiting(t, dead, request("name", time.Hour))
	waiting(t, deadToo, request("name", time.Hour))
	place := waiting(t, last, request("name", time.Hour))
	notices := told(t, last, place.Owner)
	dead.die()
	deadToo.die()
	released(t, holder, hold)
	isTold(t, "the turn of the first that lives", notices)
	renewedTo(t, last, place, driver.Held)
}
