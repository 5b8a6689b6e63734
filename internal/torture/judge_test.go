//go:build unix

package torture

import (
	"slices"
	"testing"
	"time"
)

const ms = time.Millisecond

// held is what a worker logs that asks, gets the lock, and releases it.
func held(proc int, token int64, asks, got, until, releases time.Duration) []Event {
	at := func(when time.Duration, s Step) Event {
		return Event{At: when, Step: s, Proc: proc, Worker: 1, Try: int(token), Name: "a", Token: token, Until: until}
	}
	asked := at(asks, Asks)
	asked.Waits = true
	return []Event{asked, at(got, Got), at(releases, Releases), at(releases, CtxEnds), at(releases+ms, Released)}
}

// Each promise has a history that keeps it, and one that breaks it.
func TestJudge(t *testing.T) {
	first := held(1, 1, 0, 1*ms, 1000*ms, 20*ms)
	lost := func(ends time.Duration) []Event { // by whoever was granted token 2 at 1100 ms
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
		{"two at a time", append(held(2, 2, 5*ms, 15*ms, 1000*ms, 30*ms), first...), []string{kindModel, kindOverlap}},
		{"told by its context before the next", append(append(held(1, 1, 0, 1*ms, 1000*ms, 0)[:2:2],
			Event{At: 10 * ms, Step: CtxEnds, Proc: 1, Worker: 1, Try: 1, Name: "a", Token: 1}), held(2, 2, 5*ms, 15*ms, 1000*ms, 30*ms)...), nil},
		{"relied on after the end of the process", append([]Event{{At: 10 * ms, Step: Harm, Fault: Kill, Proc: 1}},
			append(first[:2:2], held(2, 2, 5*ms, 15*ms, 1000*ms, 30*ms)...)...), nil},
		{"a token that falls", append(held(2, 1, 30*ms, 40*ms, 1000*ms, 50*ms), held(1, 2, 0, 1*ms, 1000*ms, 20*ms)...), []string{kindModel, kindToken}},
		{"a token given twice", append(held(2, 1, 5*ms, 40*ms, 1000*ms, 50*ms), first...), []string{kindToken}},
		{"a context in time", lost(1000 * ms), nil},
		{"a context too late", lost(1100*ms + 2*contextSlack), []string{kindContext}},
		{"a late context of a process that was stopped", append(lost(1100*ms+2*contextSlack),
			Event{At: 900 * ms, Step: Harm, Fault: Pause, Proc: 1}, Event{At: 3000 * ms, Step: Heals, Fault: Pause, Proc: 1}), nil},
		{"a waiter in time", append(held(2, 2, 5*ms, 21*ms+waitBound, 20*time.Second, 21*ms+waitBound), first...), nil},
		{"a waiter forgotten", append(held(2, 2, 5*ms, 50*ms+waitBound, 20*time.Second, 50*ms+waitBound), first...), []string{kindWait}},
		{"goroutines left", append([]Event{{At: 40 * ms, Step: Ends, Proc: 1, Goroutines: 2}}, first...), []string{kindLeft}},
		{"a process that failed", append([]Event{{At: 40 * ms, Step: Fails, Proc: 1, Err: "no"}}, first...), []string{kindProcess}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			events := slices.Clone(tt.events)
			slices.SortStableFunc(events, func(a, b Event) int { return int(a.At - b.At) })
			c := tried(events, 0)
			c.judge()
			if got := kinds(c.violations); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q: %+v", got, tt.want, c.violations)
			}
		})
	}
}

// tried is the court of a history with so many servers.
func tried(events []Event, servers int) *court {
	h := newHistory()
	for _, e := range events {
		h.take(e)
	}
	h.settle()
	return &court{
		h: h, ttl: time.Second, bound: waitBound, late: contextSlack, fenced: true,
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
func TestExcuses(t *testing.T) {
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
		{"forgotten before both", append(harm(-2*ms, -1*ms), overlap...), []string{kindModel, kindOverlap}, nil},
		{"forgotten after both", append(harm(16*ms, 17*ms), overlap...), []string{kindModel, kindOverlap}, nil},
		{"a token that falls", append(harm(22*ms, 25*ms), falls...), []string{kindModel, kindToken}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			events := slices.Clone(tt.events)
			slices.SortStableFunc(events, func(a, b Event) int { return int(a.At - b.At) })
			c := tried(events, 1)
			c.h.forget(func(f Fault) bool { return f != ServerForget })
			c.judge()
			if got := kinds(c.violations); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q: %+v", got, tt.want, c.violations)
			}
			if got := kinds(c.outside); !slices.Equal(got, tt.excused) {
				t.Errorf("excused %q, want %q: %+v", got, tt.excused, c.outside)
			}
		})
	}
}

// Whoever waits while the store is harmed has no claim, and has one again when it
// has had the time to recover.
func TestWaitsInOutages(t *testing.T) {
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
			c.judge()
			if got := kinds(c.violations); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q: %+v", got, tt.want, c.violations)
			}
		})
	}
}

// A long history is judged in portions, each from where the one before ends.
func TestModelInPortions(t *testing.T) {
	history := func(n int, late int) []Event {
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
	for late, want := range map[int][]string{-1: nil, portion: {kindModel}, portion + 5: {kindModel}} {
		c := tried(history(2*portion+10, late), 0)
		c.model(c.h.holds)
		if got := kinds(c.violations); !slices.Equal(got, want) {
			t.Errorf("grant %d too early: found %q, want %q", late, got, want)
		}
	}
}

// The register takes an update only from who has read what is there.
func TestRegister(t *testing.T) {
	r := &registers{of: map[string]*registerState{}}
	call := func(token int64, write bool, value int64) registerAnswer {
		return r.answer(registerCall{Name: "a", Token: token, Write: write, Value: value})
	}
	call(1, false, 0)
	call(1, true, 1)
	call(2, false, 0)
	if a := call(1, true, 2); !a.Fenced {
		t.Error("a smaller token was let in")
	}
	if len(r.clashes) != 0 {
		t.Errorf("clashes %q", r.clashes)
	}
	call(2, true, 5)
	if len(r.clashes) != 1 {
		t.Error("a lost update was not noticed")
	}
}
