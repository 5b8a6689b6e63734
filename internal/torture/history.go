//go:build unix

package torture

import (
	"cmp"
	"slices"
	"time"
)

// A hold is what the log says of one time that a worker held a lock.
type hold struct {
	name   string
	proc   int
	worker int
	try    int
	token  int64

	asked time.Duration // before it asked
	got   time.Duration // after it was told

	// relied is up to when the worker could rely on the lock, as far as is
	// known: up to its release, the loss that it noticed, its death, or the
	// deadline that it last saw, whichever came first.
	relied time.Duration

	// freed is when the store had let go at the latest, if it was released.
	freed time.Duration

	// forgot is from when on the store may have forgotten the hold, because
	// something was done to it that it does not promise to survive.
	forgot time.Duration

	ctxEnded time.Duration // when the end of the context was seen, 0 if never
	events   []Event       // without those that tell nothing
}

// never is later than everything.
const never = time.Duration(1 << 62)

// A stretch is a time in which something was harmed.
type stretch struct {
	from, to time.Duration
	fault    Fault
}

// A history is what happened in a run.
type history struct {
	holds   []*hold // in the order in which they were got
	waits   []wait
	harmed  map[int][]stretch // of each process: when it did not run, or not to its store
	servers map[int][]stretch // and of each server
	deaths  map[int][]time.Duration
	ends    []Event
	fails   []Event
	begins  int
	faults  map[Fault]int
	asks    int
	begin   time.Duration
	end     time.Duration

	current map[workerID]*attempt
	names   map[string]string // each once
}

// A wait is an acquisition that waited until it got the lock.
type wait struct {
	name      string
	proc      int
	from, got time.Duration
}

// A workerID tells who it is; whoever takes the place of a worker that was killed
// is the same.
type workerID struct{ proc, worker int }

// An attempt is the last acquisition of a worker, and what became of it.
type attempt struct {
	hold
	waits bool
}

func newHistory() *history {
	return &history{
		harmed: map[int][]stretch{}, servers: map[int][]stretch{}, deaths: map[int][]time.Duration{},
		faults: map[Fault]int{}, begin: never,
		current: map[workerID]*attempt{}, names: map[string]string{},
	}
}

// take takes the next event. Those of one worker come in the order of time, and
// so do those of the coordinator.
func (h *history) take(e Event) {
	h.begin, h.end = min(h.begin, e.At), max(h.end, e.At)
	switch e.Step {
	case Harm, Heals:
		h.harm(e)
	case Begins:
		h.begins++
	case Ends:
		h.ends = append(h.ends, e)
	case Fails:
		h.fails = append(h.fails, e)
	default:
		h.takeWorkers(e)
	}
}

func (h *history) takeWorkers(e Event) {
	e.Name = h.intern(e.Name)
	id := workerID{e.Proc, e.Worker}
	if e.Step == Asks {
		h.asks++
		h.current[id] = &attempt{hold{name: e.Name, proc: e.Proc, worker: e.Worker, try: e.Try, asked: e.At, forgot: never, events: []Event{e}}, e.Waits}
		return
	}
	a := h.current[id]
	if a == nil || a.try != e.Try {
		return
	}
	a.add(e)
	if e.Step == Got {
		h.holds = append(h.holds, &a.hold)
		if a.waits {
			h.waits = append(h.waits, wait{a.name, a.proc, a.asked, a.got})
		}
	}
}

// intern returns the one copy of a name that is kept.
func (h *history) intern(name string) string {
	if _, ok := h.names[name]; !ok {
		h.names[name] = name
	}
	return h.names[name]
}

// settle makes sense of it when all events have been taken.
func (h *history) settle() {
	for _, a := range h.holds {
		h.bury(a)
	}
	slices.SortFunc(h.holds, func(a, b *hold) int { return cmp.Compare(a.got, b.got) })
	h.begin = min(h.begin, h.end)
}

// add takes the next event of an acquisition. Of the times that the worker
// looked, only the last one counts.
func (a *hold) add(e Event) {
	last := &a.events[len(a.events)-1]
	switch {
	case e.Step == Reads, e.Step == Writes:
	case e.Step == Sees && last.Step == Sees:
		*last = e
	default:
		a.events = append(a.events, e)
	}
	switch e.Step {
	case Got:
		a.got, a.token, a.relied = e.At, e.Token, e.Until
	case Sees, Extends:
		if a.freed == 0 && a.ctxEnded == 0 {
			a.relied = max(a.relied, e.Until)
		}
	case Loses, Releases:
		a.relied = min(a.relied, e.At)
	case Released:
		if e.Err == "" {
			a.freed = e.At
		}
	case CtxEnds: // the holder has been told
		a.ctxEnded = e.At
		a.relied = min(a.relied, e.At)
	}
}

// harm notes what the coordinator did.
func (h *history) harm(e Event) {
	all, of := h.harmed, e.Proc
	if e.Server > 0 {
		all, of = h.servers, e.Server
	}
	if e.Step == Harm {
		h.faults[e.Fault]++
		all[of] = append(all[of], stretch{e.At, never, e.Fault})
		if e.Fault == Kill {
			h.deaths[e.Proc] = append(h.deaths[e.Proc], e.At)
		}
		return
	}
	for i, s := range all[of] {
		if s.to == never {
			all[of][i].to = e.At
		}
	}
}

// bury ends what a process relied on at its death.
func (h *history) bury(a *hold) {
	for _, death := range h.deaths[a.proc] {
		if death >= a.got {
			a.relied = min(a.relied, death)
			return
		}
	}
}

// forget marks the holds that the store may have forgotten, since a server, or
// their process, was harmed in a way that it does not promise to survive.
func (h *history) forget(survives func(Fault) bool) {
	for _, a := range h.holds {
		a.forget(h.harmed[a.proc], survives)
		for _, stretches := range h.servers {
			a.forget(stretches, survives)
		}
	}
}

func (a *hold) forget(stretches []stretch, survives func(Fault) bool) {
	for _, s := range stretches {
		if !survives(s.fault) && s.from <= a.relied && s.to >= a.asked {
			a.forgot = min(a.forgot, max(s.from, a.asked))
		}
	}
}
