//go:build unix

package torture

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
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

	ctxEnded time.Duration // when the end of the context was seen, 0 if never
	events   []Event
}

// A stretch is a time.
type stretch struct{ from, to time.Duration }

// A history is what happened in a run.
type history struct {
	holds   []*hold
	waits   []wait
	harmed  map[int][]stretch // of each process: when it did not run, or not to its store
	deaths  map[int][]time.Duration
	ends    []Event
	fails   []Event
	begins  int
	faults  map[Fault]int
	asks    int
	begin   time.Duration
	elapsed time.Duration
}

// A wait is an acquisition that waited until it got the lock.
type wait struct {
	name      string
	proc      int
	from, got time.Duration
}

// readJournals reads the logs of all processes, in order of time.
func readJournals(paths []string) ([]Event, error) {
	var events []Event
	for _, path := range paths {
		more, err := readJournal(path)
		if err != nil {
			return nil, err
		}
		events = append(events, more...)
	}
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return events, nil
}

func readJournal(path string) ([]Event, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var events []Event
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		events = append(events, e)
	}
	return events, lines.Err()
}

type attemptKey struct{ proc, life, worker, try int }

// readHistory makes sense of the events, which are in order of time.
func readHistory(events []Event) *history {
	h := &history{
		harmed: map[int][]stretch{},
		deaths: map[int][]time.Duration{},
		faults: map[Fault]int{},
	}
	attempts := map[attemptKey]*hold{}
	waiting := map[attemptKey]bool{}
	lives := map[int]int{}
	for _, e := range events {
		if e.Proc == 0 || e.Step == Harm || e.Step == Heals {
			h.harm(e)
			continue
		}
		key := attemptKey{e.Proc, lives[e.Proc], e.Worker, e.Try}
		switch e.Step {
		case Begins:
			lives[e.Proc]++
			h.begins++
		case Ends:
			h.ends = append(h.ends, e)
		case Fails:
			h.fails = append(h.fails, e)
		case Asks:
			h.asks++
			attempts[key] = &hold{name: e.Name, proc: e.Proc, worker: e.Worker, try: e.Try, asked: e.At, events: []Event{e}}
			waiting[key] = e.Waits
		default:
			if a := attempts[key]; a != nil {
				a.add(e)
				if e.Step == Got {
					h.holds = append(h.holds, a)
					if waiting[key] {
						h.waits = append(h.waits, wait{a.name, a.proc, a.asked, a.got})
					}
				}
			}
		}
	}
	for _, held := range h.holds {
		h.bury(held)
	}
	slices.SortFunc(h.holds, func(a, b *hold) int { return cmp.Compare(a.got, b.got) })
	if len(events) > 0 {
		h.begin = events[0].At
		h.elapsed = events[len(events)-1].At - events[0].At
	}
	return h
}

// add takes the next event of an acquisition.
func (a *hold) add(e Event) {
	a.events = append(a.events, e)
	switch e.Step {
	case Got:
		a.got, a.token, a.relied = e.At, e.Token, e.Until
	case Sees, Extends:
		if a.freed == 0 {
			a.relied = max(a.relied, e.Until)
		}
	case Loses, Releases:
		a.relied = min(a.relied, e.At)
	case Released:
		if e.Err == "" {
			a.freed = e.At
		}
	case CtxEnds:
		a.ctxEnded = e.At
	}
}

// harm notes what the coordinator did.
func (h *history) harm(e Event) {
	if e.Step == Harm {
		h.faults[e.Fault]++
	}
	if e.Proc == 0 {
		return
	}
	of := h.harmed[e.Proc]
	if e.Step == Harm {
		h.harmed[e.Proc] = append(of, stretch{e.At, 1 << 62})
		if e.Fault == Kill {
			h.deaths[e.Proc] = append(h.deaths[e.Proc], e.At)
		}
		return
	}
	for i := range of {
		if of[i].to == 1<<62 {
			of[i].to = e.At
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
