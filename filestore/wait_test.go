package filestore

import (
	"slices"
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

// awaitTurn checks that a notice comes upon which a look finds that a place has become a hold.
func awaitTurn(t *testing.T, what string, s *Store, req driver.Request, notices <-chan time.Time) {
	t.Helper()
	for limit := time.After(20 * time.Second); ; {
		select {
		case <-notices:
			if renewed(t, s, req) == driver.Held {
				return
			}
		case <-limit:
			t.Fatalf("%s is not told", what)
		}
	}
}

// The turn of the first waiter, and of one that was far behind, is told to it, in another process
// too, after the death of the holder and after the time of a keep.
func TestTold(t *testing.T) {
	dir := t.TempDir()
	c := start(t, command("hold", dir, "name", "1h"))
	c.number()
	var stores []*Store
	var reqs []driver.Request
	var notices []<-chan time.Time
	for range 32 {
		s := openTest(t, dir)
		stores = append(stores, s)
		req := request("name", time.Hour)
		notices = append(notices, told(t, s, req.Owner))
		reqs = append(reqs, waiting(t, s, req))
	}
	c.kill()
	awaitTurn(t, "the death of the holder", stores[0], reqs[0], notices[0])

	last := len(stores) - 1
	for i, s := range stores[2:last] {
		released(t, s, reqs[i+2])
	}
	_, err := stores[0].Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: reqs[0].Owner, Keep: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	renewed(t, stores[last], reqs[last]) // and looks on
	awaitTurn(t, "the end of a keep", stores[1], reqs[1], notices[1])
	stores[1].die()
	awaitTurn(t, "the death of the holder, to one that was far behind,", stores[last], reqs[last], notices[last])
}

// Without a look of a place, the end of one of several holds is told to the first waiter that
// lives, that of a place to those behind it, and a break to the holder.
func TestToldWithoutALook(t *testing.T) {
	dir := t.TempDir()
	s, other, dead, deadToo := openTest(t, dir), openTest(t, dir), openTest(t, dir), openTest(t, dir)
	for _, s := range []*Store{s, other, dead, deadToo} {
		s.lookStep = time.Hour
	}
	limited := func(limit int) driver.Request {
		req := request("name", time.Hour)
		req.Limit = limit
		return req
	}
	goes, _ := grantedTo(t, other, limited(2))
	grantedTo(t, other, limited(2))
	waiting(t, dead, limited(2))
	detached := limited(2)
	detached.Detached = true // Its hold would outlive the process.
	waiting(t, deadToo, detached)
	first := waiting(t, s, limited(2))
	notices := told(t, s, first.Owner)
	dead.die()
	deadToo.die()
	released(t, other, goes)
	awaitTurn(t, "the end of one of several", s, first, notices)

	writer, reader := waiting(t, other, limited(0)), waiting(t, s, limited(driver.Shared))
	if _, err := other.Break(t.Context(), "name", 0); err != nil {
		t.Fatal(err)
	}
	select {
	case <-notices:
	case <-time.After(20 * time.Second):
		t.Error("the holder is not told of the break")
	}
	if state := renewed(t, other, writer); state != driver.Held {
		t.Errorf("after the break the writer is %v", state)
	}
	notices = told(t, s, reader.Owner)
	released(t, other, writer)
	awaitTurn(t, "the end of the writer", s, reader, notices)
}

// The end of a hold by its time is told to all whose turn has come, also if requests for another
// name of the file, and of the last waiter, come first. A waiter that is dead is nobody by then.
func TestToldOfTime(t *testing.T) {
	f, dir := newFakeHost(), t.TempDir()
	s, dead := openTestOn(t, f.host(), dir), openTestOn(t, f.host(), dir)
	s.lookStep = time.Hour
	granted(t, s, "name", time.Minute)
	detached, reader, last := request("name", time.Hour), request("name", time.Hour), request("name", time.Hour)
	detached.Detached, reader.Limit, last.Limit = true, driver.Shared, driver.Shared
	waiting(t, dead, detached)
	notices := told(t, s, waiting(t, s, reader).Owner)
	waiting(t, s, last)
	dead.die()
	f.pass(time.Minute)
	next(t, s, besideName(1)[0])
	if state := renewed(t, s, last); state != driver.Held {
		t.Errorf("the last one is %v", state)
	}
	awaitTurn(t, "the end by its time", s, reader, notices)
}

// A dead waiter is nobody: not to a try, and not when the holder releases, also if its hold would
// outlive its process. The detached holds of its process stay, and are listed.
func TestDeadWaiterIsNobody(t *testing.T) {
	dir := t.TempDir()
	s, dead := openTest(t, dir), openTest(t, dir)
	reader := request("name", time.Hour)
	reader.Limit = driver.Shared
	hold, _ := grantedTo(t, s, reader)
	waiting(t, dead, request("name", time.Hour))
	detached := request("name", time.Hour)
	detached.Detached = true
	waiting(t, dead, detached)
	names := append(besideName(3), "name")
	for _, name := range names[:3] {
		stays := request(name, time.Hour)
		stays.Detached = true
		grantedTo(t, dead, stays)
	}
	dead.die()
	var listed []string
	for rec, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, rec.Name)
	}
	if slices.Sort(names); !slices.Equal(listed, names) {
		t.Errorf("%q are listed, want %q", listed, names)
	}
	reader.Owner += " again"
	again, _ := grantedTo(t, s, reader)
	if records, err := s.Lookup(t.Context(), "name"); err != nil || len(records) != 2 || records[0].Waiting > 0 {
		t.Error(records, err)
	}
	dead = openTest(t, dir)
	detached.Owner += " again"
	waiting(t, dead, detached)
	dead.die()
	released(t, s, hold)
	released(t, s, again)
	next(t, s, "name")
}

// The notices of a hold that another Store has renewed, as of a ticket, come to that Store.
func TestAdoptedIsTold(t *testing.T) {
	dir := t.TempDir()
	first, s, other := openTest(t, dir), openTest(t, dir), openTest(t, dir)
	req := request("name", time.Hour)
	req.Detached = true
	grantedTo(t, first, req)
	renewed(t, s, req)
	notices := told(t, s, req.Owner)
	first.Close()
	if _, err := other.Break(t.Context(), "name", 0); err != nil {
		t.Fatal(err)
	}
	select {
	case <-notices:
	case <-time.After(20 * time.Second):
		t.Error("the Store that has renewed it is not told")
	}
}
