package drivertest

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// queueCases are about places, which become holds in their order.
var queueCases = []testCase{
	{"in-order", queue, "Owners get a name in the order in which they came, through each store, one at each Release.", func(r *caseRun) {
		last, stores := r.first.hold("name", long), []*store{r.first, r.other()}
		var places []*entry
		for i := range 6 {
			places = append(places, stores[i%2].place("name", long))
		}
		for i, next := range places {
			for _, later := range places[i:] {
				later.expectState(driver.Waiting)
			}
			last.end()
			next.expectTurn()
			next.expectAbove(last)
			next.expectHeld()
			last = next
		}
		last.end()
		r.first.expectFree("name")
	}},
	{"no-overtaking", queue, "No request takes a name past the places in its queue, whatever happens at the same time.", func(r *caseRun) {
		last, other := r.first.hold("name", long), r.other()
		var places []*entry
		for i := range 8 {
			places = append(places, []*store{r.first, other}[i%2].place("name", long))
		}
		stop, overtaken := make(chan struct{}), make(chan error, 1)
		go func() { overtaken <- other.overtake("name", stop) }()
		for _, next := range places {
			last.end()
			r.first.expectTaken("name")
			other.expectTaken("name")
			next.expectTurn()
			last = next
		}
		close(stop)
		if err := <-overtaken; err != nil {
			r.Fatal(err)
		}
		last.end()
		r.first.expectFree("name")
	}},
	{"granted-at-once", queue, "A request with Place for a free name is granted at once, and the hold lasts for the TTL, whatever Place is.", func(r *caseRun) {
		a := r.first.grant(r.first.placeRequest("longer", short))
		req := r.first.placeRequest("shorter", long)
		req.TTL = r.medium
		b := r.first.grant(req)
		r.sleepPast(short)
		a.expectHeld()
		r.other().takenFor(r.first.request("shorter", long), b.sent, r.medium)
	}},
	{"end-of-a-place", queue, "A place that becomes a hold keeps the end that it had, whatever its TTL is.", func(r *caseRun) {
		h, req := r.first.hold("name", long), r.first.placeRequest("name", r.medium)
		req.TTL = short
		p := r.first.wait(req)
		time.Sleep(short)
		h.end()
		p.expectTurn()
		r.other().takenFor(r.first.request("name", long), p.sent, r.medium)
		p.expectGone()
	}},
	{"expired-places", queue, "A place that has expired is passed over, and its owner has nothing any more, whether anybody looked or not.", func(r *caseRun) {
		h, other := r.first.hold("name", long), r.other()
		a, b := r.first.place("name", short), other.place("name", long)
		a.sleepPast()
		a.expectGone()
		c, d := other.place("name", short), r.first.place("name", long)
		c.sleepPast()
		h.expectTurns(b, d)
		c.expectGone()
	}},
	{"expired-hold", queue, "When a hold expires the first place holds, though nobody has looked, and no newcomer does.", func(r *caseRun) {
		other := r.other()
		h := r.first.hold("name", r.medium)
		a, b, c := r.first.place("name", 2*r.medium+r.guarantees.Grain), other.place("name", long), other.place("name", long)
		h.sleepPast()
		other.expectTaken("name")
		a.expectState(driver.Held)
		b.expectState(driver.Waiting)
		h.expectGone()
		a.sleepPast()
		r.sleepPast(driver.MinTTL) // the end of the renewal that has looked
		b.expectState(driver.Held)
		a.expectGone()
		b.expectTurns(c)
	}},
	{"keep", queue | keep, "The first place becomes a hold when a keep is over, and not before.", func(r *caseRun) {
		h := r.first.hold("name", long)
		a, b := r.other().place("name", long), r.first.place("name", long)
		began := h.keep(r.medium)
		time.Sleep(time.Until(began.Add(r.medium - short)))
		state := driver.Waiting
		for time.Until(began.Add(r.medium-precision)) > 0 && state == driver.Waiting {
			state = a.store.renew(a.renewRequest(0, driver.MinTTL))[0].State
			time.Sleep(precision)
		}
		if left := time.Until(began.Add(r.medium - precision)); left > 0 {
			r.Errorf("a place is %v %v before the end of a keep", state, left)
		}
		a.pollHeld(began.Add(r.medium))
		b.expectState(driver.Waiting)
		a.expectTurns(b)
	}},
	{"request", queue | lookup, "A hold has the holder and the metadata of the request that made its place.", func(r *caseRun) {
		h := r.first.hold("name", long)
		req := r.first.placeRequest("name", long)
		req.Holder = "host/42/é"
		if r.features.has(metadata) {
			req.Metadata = map[string]string{"job": "42"}
		}
		p := r.first.wait(req)
		r.expectRecords("name", h)
		h.end()
		p.expectTurn()
		r.expectRecords("name", p)
	}},
	{"count", queue | lookup, "A record that has the number of places has the right one.", func(r *caseRun) {
		h := r.first.hold("name", long)
		expect := func(want int) {
			r.Helper()
			for _, rec := range r.other().lookup("name") {
				if rec.Waiting != 0 && rec.Waiting != want {
					r.Errorf("%d places are shown, want %d: %v", rec.Waiting, want, rec)
				}
			}
		}
		expect(0)
		a := r.first.place("name", long)
		r.other().place("name", long)
		expect(2)
		a.end()
		expect(1)
		h.end()
		expect(0)
	}},
	{"crash", queue | processes | crash, "The place of a process that has died holds a name up until the place ends, and no longer.", func(r *caseRun) {
		h, dying := r.first.hold("name", long), r.open()
		dead, p := dying.place("name", r.medium), r.first.place("name", long)
		r.backing.Crash(r, dying.Store)
		h.end()
		p.pollHeld(dead.answered.Add(r.medium))
	}},
}

// waitingCases are about owners that wait, in whatever order.
var waitingCases = []testCase{
	{"turns", waits, "Every owner that waits gets the name, one at a time, whenever the hold before it ends.", func(r *caseRun) {
		stores := []*store{r.first, r.other(), r.other()}
		sections := make([]section, 3)
		r.parallel(18, func(i int) error {
			for round := range 5 {
				n := (i + round) % len(sections)
				name := fmt.Sprint("name/", n)
				e, err := stores[i%len(stores)].waitTurn(name)
				if err != nil {
					return err
				}
				if err = errors.Join(sections[n].enter(e), e.endOrError()); err != nil {
					return err
				}
			}
			return nil
		})
	}},
	{"racing-release", waits, "An owner that waits gets the name, whenever the Release happens while its place is made. A grant lasts for the TTL.", func(r *caseRun) {
		other := r.other()
		for range 100 {
			h := other.hold("name", long)
			ended := h.startEnd()
			e, res, err := r.first.send(r.first.placeRequest("name", long/6))
			if err == nil && res.Waiting {
				err = e.waitHeld()
			}
			if err = errors.Join(err, <-ended); err != nil || e == nil {
				r.Fatalf("%+v, %v", res, err)
			}
			if res.Granted && r.features.has(records) {
				if left := r.first.lookup("name")[0].Remaining; left < long/2 {
					r.Errorf("of a TTL of %v remain %v", long, left)
				}
			}
			e.end()
		}
	}},
	{"given-up", waits, "A Release ends the waiting, and what waited has nothing, also if the Release is sent as the name is passed on.", func(r *caseRun) {
		other := r.other()
		for range 20 {
			h, e := other.hold("name", long), r.first.place("name", long)
			e.expectState(driver.Waiting)
			ended := h.startEnd()
			e.end()
			if err := <-ended; err != nil {
				r.Fatal(err)
			}
			e.expectGone()
			r.first.expectFree("name")
		}
	}},
}

// waitTurn acquires a name, and waits for it. It is for any goroutine.
func (s *store) waitTurn(name string) (*entry, error) {
	e, res, err := s.send(s.placeRequest(name, long))
	if err == nil && e == nil {
		err = fmt.Errorf("acquire with Place: %+v", res)
	}
	if err == nil && res.Waiting {
		err = e.waitHeld()
	}
	return e, err
}

// overtake makes attempts to take a name past its queue until stop is closed.
func (s *store) overtake(name string, stop <-chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		case <-time.After(50 * time.Microsecond):
		}
		if e, _, err := s.send(s.request(name, long)); err != nil || e != nil {
			return fmt.Errorf("an attempt beside the queue of %q has an entry: %v, %w", name, e != nil, err)
		}
	}
}
