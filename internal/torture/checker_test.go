//go:build unix

package torture

import (
	"slices"
	"testing"
	"time"
)

const ms = time.Millisecond

// held returns the events of a worker that requests the lock, gets it, and releases it.
func held(proc int, token int64, asks, got, until, releases time.Duration) []Event {
	at := func(when time.Duration, s Step) Event {
		return Event{At: when, Step: s, Proc: proc, Worker: 1, Try: int(token), Name: "a", Token: token, Until: until}
	}
	asked := at(asks, Asks)
	asked.Waits = true
	return []Event{asked, at(got, Got), at(releases, Releases), at(releases, CtxEnds), at(releases+ms, Released)}
}

// Each promise has a history that keeps it, and one that breaks it.
func TestCheckAll(t *testing.T) {
	first := held(1, 1, 0, 1*ms, 1000*ms, 20*ms)
	lost := func(ends time.Duration) []Event { // to the holder of token 2, granted at 1100 ms
		of := held(1, 1, 0, 1*ms, 1000*ms, 0)[:2]
		of = append(of, Event{At: ends, Step: CtxEnds, Proc: 1, Worker: 1, Try: 1, Name: "a", Token: 1})
		return append(of, held(2, 2, 5*ms, 1100*ms, 2000*ms, 1200*ms)...)
	}
	for _, tt := range []struct {
		name   string
		events []Event
		want   []string // kinds
	}{
		{"one after the other", append(held(2, 2, 5*ms, 22*ms, 1000*ms, 30*ms), first...), nil},
		{"two at a time", append(held(2, 2, 5*ms, 15*ms, 1000*ms, 30*ms), first...), []string{kindOrder, kindOverlap}},
		{"its context ended before the next grant", append(append(held(1, 1, 0, 1*ms, 1000*ms, 0)[:2:2],
			Event{At: 10 * ms, Step: CtxEnds, Proc: 1, Worker: 1, Try: 1, Name: "a", Token: 1}), held(2, 2, 5*ms, 15*ms, 1000*ms, 30*ms)...), nil},
		{"relied on after the end of the process", append([]Event{{At: 10 * ms, Step: Harm, Fault: Kill, Proc: 1}},
			append(first[:2:2], held(2, 2, 5*ms, 15*ms, 1000*ms, 30*ms)...)...), nil},
		{"got while the kill was under way", []Event{
			{At: 10 * ms, Step: Harm, Fault: Kill, Proc: 5},
			{At: 10 * ms, Step: Asks, Proc: 5, Worker: 1, Try: 1, Name: "a"},
			{At: 11 * ms, Step: Got, Proc: 5, Worker: 1, Try: 1, Name: "a", Token: 1, Until: 2000 * ms},
			{At: 12 * ms, Step: Sees, Proc: 5, Worker: 1, Try: 1, Name: "a", Token: 1, Until: 2001 * ms},
			{At: 13 * ms, Step: Gone, Fault: Kill, Proc: 5},
			{At: 39 * ms, Step: Asks, Proc: 4, Worker: 1, Try: 1, Name: "a"},
			{At: 40 * ms, Step: Got, Proc: 4, Worker: 1, Try: 1, Name: "a", Token: 2, Until: 2040 * ms},
			{At: 50 * ms, Step: Heals, Fault: Kill, Proc: 5},
		}, nil},
		{"got twice while the kill was under way", []Event{
			{At: 10 * ms, Step: Harm, Fault: Kill, Proc: 5},
			{At: 10 * ms, Step: Asks, Proc: 5, Worker: 1, Try: 1, Name: "a"},
			{At: 11 * ms, Step: Got, Proc: 5, Worker: 1, Try: 1, Name: "a", Token: 1, Until: 2000 * ms},
			{At: 11 * ms, Step: Asks, Proc: 4, Worker: 1, Try: 1, Name: "a"},
			{At: 12 * ms, Step: Got, Proc: 4, Worker: 1, Try: 1, Name: "a", Token: 2, Until: 2040 * ms},
			{At: 14 * ms, Step: Sees, Proc: 5, Worker: 1, Try: 1, Name: "a", Token: 1, Until: 2001 * ms},
			{At: 15 * ms, Step: Gone, Fault: Kill, Proc: 5},
			{At: 50 * ms, Step: Heals, Fault: Kill, Proc: 5},
		}, []string{kindOrder, kindOverlap}},
		{"got by the process that takes its place", []Event{
			{At: 10 * ms, Step: Harm, Fault: Kill, Proc: 5},
			{At: 13 * ms, Step: Gone, Fault: Kill, Proc: 5},
			{At: 20 * ms, Step: Asks, Proc: 5, Worker: 1, Try: 1, Name: "a"},
			{At: 21 * ms, Step: Got, Proc: 5, Worker: 1, Try: 1, Name: "a", Token: 1, Until: 2000 * ms},
			{At: 22 * ms, Step: Heals, Fault: Kill, Proc: 5},
			{At: 39 * ms, Step: Asks, Proc: 4, Worker: 1, Try: 1, Name: "a"},
			{At: 40 * ms, Step: Got, Proc: 4, Worker: 1, Try: 1, Name: "a", Token: 2, Until: 2040 * ms},
		}, []string{kindOrder, kindOverlap}},
		{"a token that falls", append(held(2, 1, 30*ms, 40*ms, 1000*ms, 50*ms), held(1, 2, 0, 1*ms, 1000*ms, 20*ms)...), []string{kindOrder, kindToken}},
		{"a token given twice", append(held(2, 1, 5*ms, 40*ms, 1000*ms, 50*ms), first...), []string{kindToken}},
		{"a context in time", lost(1000 * ms), nil},
		{"a context too late", lost(1100*ms + 2*contextSlack), []string{kindContext}},
		{"a late context of a process that was stopped", append(lost(1100*ms+2*contextSlack),
			Event{At: 900 * ms, Step: Harm, Fault: Pause, Proc: 1}, Event{At: 3000 * ms, Step: Heals, Fault: Pause, Proc: 1}), nil},
		{"a waiter in time", append(held(2, 2, 5*ms, 21*ms+waitBound, 20*time.Second, 21*ms+waitBound), first...), nil},
		{"a waiter forgotten", append(held(2, 2, 5*ms, 50*ms+waitBound, 20*time.Second, 50*ms+waitBound), first...), []string{kindWait}},
		{"goroutines left", append([]Event{{At: 40 * ms, Step: Ends, Proc: 1, Goroutines: 2}}, first...), []string{kindLeak}},
		{"a process that failed", append([]Event{{At: 40 * ms, Step: Fails, Proc: 1, Err: "no"}}, first...), []string{kindProcess}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			events := slices.Clone(tt.events)
			slices.SortStableFunc(events, func(a, b Event) int { return int(a.At - b.At) })
			c := tried(events, 0)
			c.checkAll()
			if got := kinds(c.violations); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q: %+v", got, tt.want, c.violations)
			}
		})
	}
}

// What is held by Do, ended for all locks of a client at once, broken, and refused
// has its own promises.
func TestCheckDoResults(t *testing.T) {
	under := func(of []Event) []Event {
		of = slices.Clone(of)
		of[0].Under, of[1].Under, of[1].Client = true, true, 1
		of[len(of)-1].Under = true
		return of
	}
	first := held(1, 1, 0, 1*ms, 1000*ms, 20*ms)
	first[1].Client = 1
	next := held(2, 2, 5*ms, 15*ms, 1000*ms, 30*ms)
	ends := func(client int, from, to time.Duration) []Event {
		return []Event{{At: from, Step: EndsAll, Proc: 1, Client: client}, {At: to, Step: EndedAll, Proc: 1, Client: client}}
	}
	// stopped is a lease under Do whose context ended at a time, before its work did.
	stopped := func(ctxEnds time.Duration, lost bool, err string) []Event {
		of := under(first)
		of[3] = Event{At: ctxEnds, Step: CtxEnds, Proc: 1, Worker: 1, Try: 1, Name: "a", Lost: lost, Over: true}
		of[2], of[3] = of[3], of[2]
		of[4].Err = err
		return of
	}
	broken := func(from, to time.Duration, err string) []Event {
		return []Event{{At: from, Step: Breaks, Proc: 3, Worker: 1, Name: "a"}, {At: to, Step: Broke, Proc: 3, Worker: 1, Name: "a", Err: err}}
	}
	for _, tt := range []struct {
		name   string
		events [][]Event
		want   []string // kinds
	}{
		{"Do, in time", [][]Event{under(first), held(2, 2, 5*ms, 22*ms, 1000*ms, 30*ms)}, nil},
		{"the work had not ended", [][]Event{stopped(10*ms, false, "released"), next}, []string{kindOrder, kindOverlap}},
		{"the work had not ended, but the lock was lost", [][]Event{stopped(10*ms, true, "lost"), next}, nil},
		{"nil though the context had ended", [][]Event{stopped(10*ms, false, "")}, []string{kindNil}},
		{"nil though the lock was lost", [][]Event{stopped(10*ms, true, "")}, []string{kindNil}},
		{"an error because the context had ended", [][]Event{stopped(10*ms, false, "released")}, nil},
		{"nil though another was granted it", [][]Event{under(first), next}, []string{kindNil, kindOrder, kindOverlap}},
		{"all locks were released", [][]Event{ends(1, 14*ms, 16*ms), first, next}, nil},
		{"those of another client were", [][]Event{ends(2, 14*ms, 16*ms), first, next}, []string{kindOrder, kindOverlap}},
		{"they were, but it had Do", [][]Event{ends(1, 14*ms, 16*ms), stopped(15*ms, false, "released"), next}, []string{kindOrder, kindOverlap}},
		{"they were, later", [][]Event{ends(1, 16*ms, 17*ms), first, next}, []string{kindOrder, kindOverlap}},
		{"it was broken", [][]Event{broken(12*ms, 14*ms, ""), first, next}, nil},
		{"it was broken, perhaps", [][]Event{broken(2*ms, 3*ms, "no answer"), first, next}, nil},
		{"perhaps, long ago", [][]Event{broken(2*ms, 3*ms, "no answer"),
			held(1, 1, 15100*ms, 15101*ms, 20000*ms, 15120*ms), held(2, 2, 15105*ms, 15115*ms, 20000*ms, 15130*ms)}, []string{kindOrder, kindOverlap}},
		{"it was broken later", [][]Event{broken(16*ms, 18*ms, ""), first, next}, []string{kindOrder, kindOverlap}},
		{"broken and under Do, which says nil", [][]Event{broken(12*ms, 14*ms, ""), under(first), next}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			events := slices.Concat(tt.events...)
			slices.SortStableFunc(events, func(a, b Event) int { return int(a.At - b.At) })
			c := tried(events, 0)
			c.checkAll()
			if got := kinds(c.violations); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q: %+v", got, tt.want, c.violations)
			}
		})
	}
}

// That a lock is held cannot be known when all servers have been stopped for longer
// than its TTL.
func TestCheckRefusals(t *testing.T) {
	const ttl = time.Second // of tried
	stop := func(from, to time.Duration, servers ...int) (events []Event) {
		for _, server := range servers {
			events = append(events, Event{At: from, Step: Harm, Fault: Outage, Server: server}, Event{At: to, Step: Heals, Fault: Outage, Server: server})
		}
		return events
	}
	refused := func(asks, told time.Duration, held bool) []Event {
		return []Event{{At: asks, Step: Asks, Proc: 1, Worker: 1, Try: 1, Name: "a"}, {At: told, Step: Refused, Proc: 1, Worker: 1, Try: 1, Name: "a", Held: held}}
	}
	for _, tt := range []struct {
		name   string
		events [][]Event
		want   []string
	}{
		{"held, after a TTL", [][]Event{stop(0, 4*ttl, 1), refused(2*ttl, 2*ttl+ms, true)}, []string{kindHeld}},
		{"unavailable, after a TTL", [][]Event{stop(0, 4*ttl, 1), refused(2*ttl, 2*ttl+ms, false)}, nil},
		{"held, within a TTL", [][]Event{stop(0, 4*ttl, 1), refused(ttl, ttl+ms, true)}, nil},
		{"held, when it was back", [][]Event{stop(0, 4*ttl, 1), refused(2*ttl, 4*ttl+ms, true)}, nil},
		{"of a quorum", [][]Event{stop(0, 4*ttl, 1), stop(ttl, 3*ttl, 2), refused(2*ttl+500*ms, 2*ttl+501*ms, true)}, []string{kindHeld}},
		{"of a quorum, part of which was not stopped as long", [][]Event{stop(0, 4*ttl, 1), stop(2*ttl, 3*ttl, 2), refused(2*ttl+500*ms, 2*ttl+501*ms, true)}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			events := slices.Concat(tt.events...)
			slices.SortStableFunc(events, func(a, b Event) int { return int(a.At - b.At) })
			c := tried(events, 2)
			c.checkAll()
			if got := kinds(c.violations); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q: %+v", got, tt.want, c.violations)
			}
		})
	}
}

// tried is the checker of a history with so many servers.
func tried(events []Event, servers int) *checker {
	h := newHistory()
	for _, e := range events {
		h.addEvent(e)
	}
	h.finalize()
	return &checker{
		history: h, ttl: time.Second, maxWait: waitBound, maxContextDelay: contextSlack, fenced: true,
		outages: h.outages(servers, time.Second),
	}
}

func kinds(violations []Violation) []string {
	var all []string
	for _, v := range violations {
		all = append(all, v.Kind)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// What a fault that is not survived does to exclusion is no violation, and what
// it did not do is one; tokens have no excuse.
func TestAllowedViolations(t *testing.T) {
	harm := func(from, to time.Duration) []Event {
		return []Event{{At: from, Step: Harm, Fault: ServerForget, Server: 1}, {At: to, Step: Heals, Fault: ServerForget, Server: 1}}
	}
	overlap := append(held(1, 1, 0, 1*ms, 1000*ms, 20*ms), held(2, 2, 5*ms, 15*ms, 1000*ms, 30*ms)...)
	falls := append(held(1, 2, 0, 1*ms, 1000*ms, 20*ms), held(2, 1, 30*ms, 40*ms, 1000*ms, 50*ms)...)
	for _, tt := range []struct {
		name          string
		events        []Event
		want, excused []string
	}{
		{"forgotten between the grants", append(harm(5*ms, 10*ms), overlap...), nil, []string{kindOverlap}},
		{"the process of one harmed so", append([]Event{{At: 5 * ms, Step: Harm, Fault: ServerForget, Proc: 1},
			{At: 6 * ms, Step: Heals, Fault: ServerForget, Proc: 1}}, overlap...), nil, []string{kindOverlap}},
		{"forgotten before both", append(harm(-2*ms, -1*ms), overlap...), []string{kindOrder, kindOverlap}, nil},
		{"forgotten after both", append(harm(16*ms, 17*ms), overlap...), []string{kindOrder, kindOverlap}, nil},
		{"a token that falls", append(harm(22*ms, 25*ms), falls...), []string{kindOrder, kindToken}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			events := slices.Clone(tt.events)
			slices.SortStableFunc(events, func(a, b Event) int { return int(a.At - b.At) })
			c := tried(events, 1)
			c.history.markForgettable(func(f Fault) bool { return f != ServerForget })
			c.checkAll()
			if got := kinds(c.violations); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q: %+v", got, tt.want, c.violations)
			}
			if got := kinds(c.outside); !slices.Equal(got, tt.excused) {
				t.Errorf("excused %q, want %q: %+v", got, tt.excused, c.outside)
			}
		})
	}
}

// A wait during a fault of the store is no violation. A wait after the time to recover is one.
func TestCheckWaitInOutages(t *testing.T) {
	for _, tt := range []struct {
		name  string
		heals time.Duration
		want  []string
	}{
		{"it is back just in time", 30*ms + waitBound, nil},
		{"it was back long before", 20 * ms, []string{kindWait}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const recovery = time.Second // of tried
			got := 50*ms + 2*recovery + waitBound
			events := append(held(1, 1, 0, 1*ms, 1000*ms, 10*ms), Event{At: 15 * ms, Step: Harm, Fault: ServerRestart, Server: 1},
				Event{At: tt.heals, Step: Heals, Fault: ServerRestart, Server: 1})
			c := tried(append(events, held(2, 2, 5*ms, got, got+time.Second, got+ms)...), 1)
			c.checkAll()
			if got := kinds(c.violations); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q: %+v", got, tt.want, c.violations)
			}
		})
	}
}

// The order of the tokens must explain what was seen, wherever in a long history.
func TestCheckOrder(t *testing.T) {
	const n = 4000
	history := func(late int) []Event {
		var events []Event
		for i := range n {
			at := time.Duration(i) * 10 * ms
			got := at + 2*ms
			if i == late {
				at, got = at-15*ms, at-13*ms // before the one before it
			}
			events = append(events, held(1, int64(i+1), at, got, at+time.Second, at+5*ms)...)
		}
		return events
	}
	for late, want := range map[int][]string{-1: nil, 1: {kindOrder}, n / 2: {kindOrder}, n - 1: {kindOrder}} {
		c := tried(history(late), 0)
		c.checkOrder(c.history.leases)
		if got := kinds(c.violations); !slices.Equal(got, want) {
			t.Errorf("grant %d too early: found %q, want %q", late, got, want)
		}
	}
	// Neither lease was valid while the other was, and the grant with the greater token had not
	// returned when the other was requested. Still they cannot both have had the lock.
	c := tried(append(held(1, 5, 0, 10*ms, 1000*ms, 12*ms), held(2, 3, 8*ms, 30*ms, 1000*ms, 40*ms)...), 0)
	c.checkAll()
	if got := kinds(c.violations); !slices.Equal(got, []string{kindOrder}) {
		t.Errorf("a token that falls between requests at the same time: found %q", got)
	}
}

// The register accepts an update only from a holder that has read the value.
func TestRegister(t *testing.T) {
	r := &registerServer{states: map[string]*registerState{}}
	call := func(token int64, write bool, value int64) registerResponse {
		return r.handleRequest(registerRequest{Name: "a", Token: token, Write: write, Value: value})
	}
	call(1, false, 0)
	call(1, true, 1)
	call(2, false, 0)
	if a := call(1, true, 2); !a.Fenced {
		t.Error("a smaller token was let in")
	}
	if len(r.lostUpdates) != 0 {
		t.Errorf("clashes %q", r.lostUpdates)
	}
	call(2, true, 5)
	if len(r.lostUpdates) != 1 {
		t.Error("a lost update was not noticed")
	}
}
