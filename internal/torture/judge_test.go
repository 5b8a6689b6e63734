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
			c := &court{h: readHistory(events), ttl: time.Second, bound: waitBound, late: contextSlack, fenced: true}
			c.judge()
			var got []string
			for _, v := range c.violations {
				got = append(got, v.Kind)
			}
			slices.Sort(got)
			if got = slices.Compact(got); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q: %+v", got, tt.want, c.violations)
			}
		})
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
