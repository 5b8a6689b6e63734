//go:build unix

package torture

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
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
	killed := func(gone time.Duration) []Event {
		return []Event{
			{At: 10 * ms, Step: Harm, Fault: Kill, Proc: 5}, {At: gone, Step: Gone, Fault: Kill, Proc: 5}, {At: 50 * ms, Step: Heals, Fault: Kill, Proc: 5},
		}
	}
	sees := func(at time.Duration) []Event {
		return []Event{{At: at, Step: Sees, Proc: 5, Worker: 1, Try: 1, Name: "a", Token: 1, Until: 2001 * ms}}
	}
	stopped := func(err string) []Event { // beside the wait of another, which fails
		return []Event{
			{At: 10 * ms, Step: Harm, Fault: Pause, Proc: 3}, {At: 40*ms + waitBound, Step: Heals, Fault: Pause, Proc: 3},
			{At: 15 * ms, Step: Asks, Proc: 4, Worker: 1, Try: 1, Name: "a"}, {At: 45 * ms, Step: Refused, Proc: 4, Worker: 1, Try: 1, Name: "a", Err: err},
		}
	}
	for _, tt := range []struct {
		name   string
		events []Event
		want   []string // kinds
	}{
		{"one after the other", append(held(2, 2, 5*ms, 22*ms, 1000*ms, 30*ms), first...), nil},
		{"two at a time", append(held(2, 2, 5*ms, 15*ms, 1000*ms, 30*ms), first...), []string{kindOverlap}},
		{"its context ended before the next grant", append(append(held(1, 1, 0, 1*ms, 1000*ms, 0)[:2:2],
			Event{At: 10 * ms, Step: CtxEnds, Proc: 1, Worker: 1, Try: 1, Name: "a", Token: 1}), held(2, 2, 5*ms, 15*ms, 1000*ms, 30*ms)...), nil},
		{"relied on after the end of the process", append([]Event{{At: 10 * ms, Step: Harm, Fault: Kill, Proc: 1}},
			append(first[:2:2], held(2, 2, 5*ms, 15*ms, 1000*ms, 30*ms)...)...), nil},
		{"got while the kill was under way", slices.Concat(killed(13*ms), held(5, 1, 10*ms, 11*ms, 2000*ms, 0)[:2],
			sees(12*ms), held(4, 2, 39*ms, 40*ms, 2040*ms, 0)[:2]), nil},
		{"got twice while the kill was under way", slices.Concat(killed(15*ms), held(5, 1, 10*ms, 11*ms, 2000*ms, 0)[:2],
			held(4, 2, 11*ms, 12*ms, 2040*ms, 0)[:2], sees(14*ms)), []string{kindOverlap}},
		{"got by the process that takes its place", slices.Concat(killed(13*ms), held(5, 1, 20*ms, 21*ms, 2000*ms, 0)[:2],
			held(4, 2, 39*ms, 40*ms, 2040*ms, 0)[:2]), []string{kindOverlap}},
		{"a token that falls", append(held(2, 1, 30*ms, 40*ms, 1000*ms, 50*ms), held(1, 2, 0, 1*ms, 1000*ms, 20*ms)...), []string{kindToken}},
		{"a token given twice", append(held(2, 1, 5*ms, 40*ms, 1000*ms, 50*ms), first...), []string{kindToken}},
		{"a context too late", lost(1100*ms + 2*contextSlack), []string{kindContext}},
		{"a late context of a process that was stopped", append(lost(1100*ms+2*contextSlack),
			Event{At: 900 * ms, Step: Harm, Fault: Pause, Proc: 1}, Event{At: 3000 * ms, Step: Heals, Fault: Pause, Proc: 1}), nil},
		{"a waiter in time", append(held(2, 2, 5*ms, 21*ms+waitBound, 20*time.Second, 21*ms+waitBound), first...), nil},
		{"a waiter forgotten", append(held(2, 2, 5*ms, 50*ms+waitBound, 20*time.Second, 50*ms+waitBound), first...), []string{kindWait}},
		{"a waiter behind a process that was stopped in the middle of a request", append(stopped("the disk hangs, or a process is stopped in the middle of a request"),
			append(held(2, 2, 5*ms, 50*ms+waitBound, 20*time.Second, 50*ms+waitBound), first...)...), nil},
		{"a waiter beside a process that was stopped", append(stopped("no"),
			append(held(2, 2, 5*ms, 50*ms+waitBound, 20*time.Second, 50*ms+waitBound), first...)...), []string{kindWait}},
		{"a lock left", append([]Event{{At: 40 * ms, Step: Ends, Proc: 1, Err: "a is held"}}, first...), []string{kindLeak}},
		{"a process that failed", append([]Event{{At: 40 * ms, Step: Fails, Proc: 1, Err: "no"}}, first...), []string{kindProcess}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			check(t, [][]Event{tt.events}, 0, tt.want, nil)
		})
	}
}

// beside returns events as those of holds that tolerate others.
func beside(limit int, events []Event) []Event {
	events = slices.Clone(events)
	for i := range events {
		events[i].Limit = limit
	}
	return events
}

// Readers hold the lock together and a writer holds it alone, and those with a limit are not more
// than that. Each has its token in the order of the grants.
//
// What a fault that is not survived does to exclusion is no violation, and what it did not do is
// one; tokens have no excuse. A wait during a fault of the store is no violation, one after the time
// to recover is.
func TestCheckTolerantHolds(t *testing.T) {
	reader := func(of []Event) []Event { return beside(driver.Shared, of) }
	slots := func(of []Event) []Event { return beside(2, of) }
	kill := []Event{{At: 5 * ms, Step: Harm, Fault: Kill, Proc: 3}, {At: 6 * ms, Step: Gone, Fault: Kill, Proc: 3}}
	flush := []Event{{At: 5 * ms, Step: Harm, Fault: ServerForget, Server: 1}, {At: 6 * ms, Step: Heals, Fault: ServerForget, Server: 1}}
	first, second := held(1, 1, 0, 1*ms, 1000*ms, 20*ms), held(2, 2, 5*ms, 15*ms, 1000*ms, 30*ms)
	// lost is a lease whose context was seen to end at 2200 ms, long after its deadline.
	lost := append(held(1, 1, 0, 1*ms, 1000*ms, 0)[:2:2], Event{At: 2200 * ms, Step: CtxEnds, Proc: 1, Worker: 1, Try: 1, Name: "a"})
	next := held(2, 2, 5*ms, 1100*ms, 4000*ms, 3000*ms)
	// The lease under Do that returned nil ended at 20 ms.
	under := slices.Clone(first)
	under[1].Under, under[4].Under = true, true
	// The wait from 5 ms on is over when the holder that was granted the lock at 1 ms has it still.
	longHold := held(1, 1, 0, 1*ms, 20*time.Second, 10*time.Second)
	longWait := held(2, 3, 5*ms, 2*time.Second+waitBound, 20*time.Second, 2001*ms+waitBound)
	gaveUp := func(from, to time.Duration) []Event {
		return []Event{{At: from, Step: Asks, Proc: 3, Worker: 1, Try: 1, Name: "a", Waits: true}, {At: to, Step: Refused, Proc: 3, Worker: 1, Try: 1, Name: "a"}}
	}
	harm := func(fault Fault, proc int, from, to time.Duration) []Event {
		server := 1 - min(proc, 1)
		return []Event{{At: from, Step: Harm, Fault: fault, Proc: proc, Server: server}, {At: to, Step: Heals, Fault: fault, Proc: proc, Server: server}}
	}
	falls := append(held(1, 2, 0, 1*ms, 1000*ms, 20*ms), held(2, 1, 30*ms, 40*ms, 1000*ms, 50*ms)...)
	recovered := 50*ms + 2*time.Second + waitBound // the time to recover is that of tried
	late := [][]Event{held(1, 1, 0, 1*ms, 1000*ms, 10*ms), held(2, 2, 5*ms, recovered, recovered+time.Second, recovered+ms)}
	for _, tt := range []struct {
		name          string
		events        [][]Event
		want, excused []string
	}{
		{"forgotten between the grants", [][]Event{harm(ServerForget, 0, 5*ms, 10*ms), first, second}, nil, []string{kindOverlap}},
		{"the process of one harmed so", [][]Event{harm(ServerForget, 1, 5*ms, 6*ms), first, second}, nil, []string{kindOverlap}},
		{"forgotten before both", [][]Event{harm(ServerForget, 0, -2*ms, -1*ms), first, second}, []string{kindOverlap}, nil},
		{"forgotten after both", [][]Event{harm(ServerForget, 0, 16*ms, 17*ms), first, second}, []string{kindOverlap}, nil},
		{"a token that falls", [][]Event{harm(ServerForget, 0, 22*ms, 25*ms), falls}, []string{kindToken}, nil},
		{"a wait until just after an outage", append(late, harm(ServerRestart, 0, 15*ms, 30*ms+waitBound)), nil, nil},
		{"a wait long after an outage", append(late, harm(ServerRestart, 0, 15*ms, 20*ms)), []string{kindWait}, nil},
		{"readers together", [][]Event{reader(first), reader(second)}, nil, nil},
		{"a writer beside a reader", [][]Event{reader(first), second}, []string{kindOverlap}, nil},
		{"a reader beside a writer", [][]Event{first, reader(second)}, []string{kindOverlap}, nil},
		{"a share of a smaller token", [][]Event{slots(first), slots(held(1, 10, 0, 22*ms, 1000*ms, 23*ms)), slots(held(2, 9, 23500*time.Microsecond, 24*ms, 1000*ms, 30*ms))}, []string{kindToken}, nil},
		{"one more", [][]Event{slots(first), slots(second), slots(held(3, 3, 6*ms, 18*ms, 1000*ms, 25*ms))}, []string{kindLimit}, nil},
		{"a writer beside one with a limit", [][]Event{slots(first), second}, []string{kindOverlap}, nil},
		{"a reader beside as many as the limit", [][]Event{slots(first), slots(second), reader(held(3, 3, 6*ms, 18*ms, 1000*ms, 25*ms))}, []string{kindLimit}, nil},
		{"one more, and one was killed", [][]Event{slots(held(3, 1, 0, 1*ms, 1000*ms, 20*ms)[:2]), kill, slots(second), slots(held(1, 3, 6*ms, 16*ms, 1000*ms, 25*ms))}, nil, nil},
		{"one more, and one was forgotten", [][]Event{slots(first), flush, slots(held(2, 2, 7*ms, 15*ms, 1000*ms, 30*ms)), slots(held(3, 3, 7*ms, 16*ms, 1000*ms, 25*ms))}, nil, []string{kindLimit}},
		{"one more without the one that was forgotten", [][]Event{slots(first), flush, slots(held(2, 2, 7*ms, 15*ms, 1000*ms, 30*ms)), slots(held(3, 3, 7*ms, 16*ms, 1000*ms, 25*ms)), slots(held(4, 4, 7*ms, 17*ms, 1000*ms, 25*ms))}, []string{kindLimit}, []string{kindLimit}},
		{"a writer beside a reader that was forgotten", [][]Event{reader(first), flush, held(2, 2, 7*ms, 15*ms, 1000*ms, 30*ms)}, nil, []string{kindOverlap}},
		{"readers with tokens against their order", [][]Event{reader(held(1, 2, 0, 1*ms, 1000*ms, 20*ms)), reader(held(2, 1, 5*ms, 15*ms, 1000*ms, 30*ms))}, []string{kindToken}, nil},
		{"readers that were requested at the same time, in any order", [][]Event{reader(held(1, 2, 0, 10*ms, 1000*ms, 20*ms)), reader(held(2, 1, 0, 15*ms, 1000*ms, 30*ms))}, nil, nil},
		{"a late context beside another reader", [][]Event{reader(lost), reader(next)}, nil, nil},
		{"a late context of a reader beside a writer", [][]Event{reader(lost), next}, []string{kindContext}, nil},
		{"Do of a reader beside a writer", [][]Event{reader(under), second}, []string{kindNil, kindOverlap}, nil},
		{"a reader that waits behind a writer", [][]Event{longHold, reader(longWait)}, []string{kindOverlap}, nil},
		{"a reader that waits for nothing", [][]Event{reader(longHold), reader(longWait)}, []string{kindWait}, nil},
		{"a reader that waits on after one that gave up", [][]Event{reader(longHold), gaveUp(2*ms, 50*ms), reader(longWait)}, []string{kindWait}, nil},
		{"a reader that waits behind one that gave up", [][]Event{reader(longHold), gaveUp(2*ms, 50*ms+waitBound), reader(longWait)}, nil, nil},
		{"a reader that waits behind one with a limit that waits", [][]Event{slots(longHold), reader(longWait), slots(held(3, 4, 3*ms, 11*time.Second, 20*time.Second, 12*time.Second))}, nil, nil},
		{"a reader that waits behind one that was killed", [][]Event{reader(longHold), gaveUp(2*ms, 0)[:1], {{At: 50*ms + waitBound, Step: Begins, Proc: 3}}, reader(longWait)}, nil, nil},
		{"one with a limit that waits for nothing", [][]Event{slots(first), slots(longWait)}, []string{kindWait}, nil},
		{"a third before the first of two has ended", [][]Event{slots(held(1, 1, 0, 1*ms, 1000*ms, 100*ms)), slots(held(2, 2, 0, 2*ms, 1000*ms, 20*ms)), slots(held(3, 3, 10*ms, 25*ms, 1000*ms, 30*ms))}, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) { check(t, tt.events, 1, tt.want, tt.excused) })
	}
}

// What is held by Do, and what is ended for all locks of a client at once, has its own promises.
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
	// seen is a lease that is seen at 12 ms, after all locks were released while it was waited for.
	seen := append(append(ends(1, 2*ms, 3*ms), first[:2:2]...),
		Event{At: 12 * ms, Step: Sees, Proc: 1, Worker: 1, Try: 1, Name: "a", Token: 1, Until: 1000 * ms})
	seen[3].At = 10 * ms
	for _, tt := range []struct {
		name   string
		events [][]Event
		want   []string // kinds
	}{
		{"Do, in time", [][]Event{under(first), held(2, 2, 5*ms, 22*ms, 1000*ms, 30*ms)}, nil},
		{"the work had not ended", [][]Event{stopped(10*ms, false, "released"), next}, []string{kindOverlap}},
		{"the work had not ended, but the lock was lost", [][]Event{stopped(10*ms, true, "lost"), next}, nil},
		{"nil though the context had ended", [][]Event{stopped(10*ms, false, "")}, []string{kindNil}},
		{"nil though the lock was lost", [][]Event{stopped(10*ms, true, "")}, []string{kindNil}},
		{"an error because the context had ended", [][]Event{stopped(10*ms, false, "released")}, nil},
		{"nil though another was granted it", [][]Event{under(first), next}, []string{kindNil, kindOverlap}},
		{"all locks were released", [][]Event{ends(1, 14*ms, 16*ms), first, next}, nil},
		{"they were, before it was granted", [][]Event{seen, next}, []string{kindOverlap}},
		{"they were, but it had Do", [][]Event{ends(1, 14*ms, 16*ms), stopped(15*ms, false, "released"), next}, []string{kindOverlap}},
	} {
		t.Run(tt.name, func(t *testing.T) { check(t, tt.events, 0, tt.want, nil) })
	}
}

// That a lock is held cannot be known when all servers have been stopped for longer than its TTL.
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
		name     string
		events   [][]Event
		want     []string
		sessions bool
	}{
		{"held, after a TTL", [][]Event{stop(0, 4*ttl, 1), refused(2*ttl, 2*ttl+ms, true)}, []string{kindHeld}, false},
		{"held by a session, after a TTL", [][]Event{stop(0, 4*ttl, 1), refused(2*ttl, 2*ttl+ms, true)}, nil, true},
		{"unavailable, after a TTL", [][]Event{stop(0, 4*ttl, 1), refused(2*ttl, 2*ttl+ms, false)}, nil, false},
		{"held, when it was back", [][]Event{stop(0, 4*ttl, 1), refused(2*ttl, 4*ttl+ms, true)}, nil, false},
		{"of a quorum", [][]Event{stop(0, 4*ttl, 1), stop(ttl, 3*ttl, 2), refused(2*ttl+500*ms, 2*ttl+501*ms, true)}, []string{kindHeld}, false},
		{"of a quorum, part of which was not stopped as long", [][]Event{stop(0, 4*ttl, 1), stop(2*ttl, 3*ttl, 2), refused(2*ttl+500*ms, 2*ttl+501*ms, true)}, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			events := slices.Concat(tt.events...)
			slices.SortStableFunc(events, func(a, b Event) int { return int(a.At - b.At) })
			c := tried(events, 2)
			c.sessions = tt.sessions
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

// check checks a history of a store with so many servers, which does not promise to survive
// ServerForget.
func check(t *testing.T, parts [][]Event, servers int, want, excused []string) {
	t.Helper()
	events := slices.Concat(parts...)
	slices.SortStableFunc(events, func(a, b Event) int { return int(a.At - b.At) })
	c := tried(events, servers)
	c.history.markForgettable(func(f Fault) bool { return f != ServerForget })
	c.checkAll()
	if got := kinds(c.violations); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q: %+v", got, want, c.violations)
	}
	if got := kinds(c.outside); !slices.Equal(got, excused) {
		t.Errorf("excused %q, want %q: %+v", got, excused, c.outside)
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
