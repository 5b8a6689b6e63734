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

// A lease is what the log shows of one time that a worker held a lock, or tried to acquire
// it.
type lease struct {
	name   string
	proc   int
	worker int
	try    int
	waits  bool // it waits for the lock
	token  int64

	requestedAt time.Duration // before the request
	grantedAt   time.Duration // after the reply
	refusedAt   time.Duration // after the reply, if it was ErrHeld

	// validUntil is the time up to which the worker could rely on the lock, as far as is
	// known: its release, the loss that it noticed, its death, or the deadline that it last
	// saw, whichever is first.
	validUntil time.Duration

	// releasedAt is when the store had released the lock at the latest, 0 if it was not
	// released.
	releasedAt time.Duration

	// maybeForgottenAt is the time from which the store may have forgotten the lease,
	// because of a fault that it does not promise to survive.
	maybeForgottenAt time.Duration

	// underDo reports that the lock was held by Do. Then workEndedAt is when the work had
	// ended, and doReturnedNil whether Do reported that the lock had been held until then.
	underDo       bool
	workEndedAt   time.Duration
	doReturnedNil bool

	firstClient, lastClient int  // clients of the process that had it: an adopted lock has another
	maybeBroken             bool // a Break may have ended it

	ctxEndedAt time.Duration // when the end of the context was seen, 0 if never
	events     []Event       // without those that add nothing
}

// never is later than every time of a run.
const never = time.Duration(1 << 62)

// An interval is a time in which a process or a server had a fault.
type interval struct {
	from, to time.Duration
	fault    Fault
}

// A history is what happened in a run.
type history struct {
	leases          []*lease           // in the order of their grants
	waits           []*lease           // those that were granted after a wait
	processFaults   map[int][]interval // of each process: when it did not run, or had no connection to its store
	serverFaults    map[int][]interval // of each server
	processDeaths   map[int][]interval // of each process: from the kill to its end
	processEnds     []Event
	processFailures []Event
	forcedEnds      map[int][]forcedEnd     // of each process: when all locks of a client were ended
	breaks          map[string][]*forcedEnd // of each name
	refusals        []*lease                // with ErrHeld
	processStarts   int
	faultCounts     map[Fault]int
	attempts        int
	startedAt       time.Duration
	endedAt         time.Duration

	lastAttempts  map[workerID]*lease     // the last acquisition of each worker, and its outcome
	lastBreaks    map[workerID]*forcedEnd // the last Break of each worker
	internedNames map[string]string       // one copy of each name
}

// A forcedEnd is a time in which locks were ended before they ran out.
type forcedEnd struct {
	from, to time.Duration
	client   int
}

// A workerID identifies a worker. The worker that takes the place of a killed one has the
// same workerID.
type workerID struct{ proc, worker int }

func newHistory() *history {
	return &history{
		processFaults: map[int][]interval{}, serverFaults: map[int][]interval{}, processDeaths: map[int][]interval{},
		forcedEnds: map[int][]forcedEnd{}, breaks: map[string][]*forcedEnd{},
		faultCounts: map[Fault]int{}, startedAt: never,
		lastAttempts: map[workerID]*lease{}, lastBreaks: map[workerID]*forcedEnd{}, internedNames: map[string]string{},
	}
}

// readHistory reads the logs of all processes. It reads line by line, because the logs of
// ten minutes have millions of lines.
func readHistory(paths []string) (*history, error) {
	h := newHistory()
	for _, path := range paths {
		if err := readEventLog(path, h.addEvent); err != nil {
			return nil, err
		}
	}
	h.finalize()
	return h, nil
}

func readEventLog(path string, addEvent func(Event)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxLineLen)
	for lines.Scan() {
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		addEvent(e)
	}
	return lines.Err()
}

// addEvent adds the next event. The events of one worker come in the order of time, and so
// do those of the coordinator.
func (h *history) addEvent(e Event) {
	h.startedAt, h.endedAt = min(h.startedAt, e.At), max(h.endedAt, e.At)
	switch e.Step {
	case Harm, Heals:
		h.addFault(e)
	case Gone:
		if all := h.processDeaths[e.Proc]; len(all) > 0 {
			all[len(all)-1].to = e.At
		}
	case EndsAll:
		h.forcedEnds[e.Proc] = append(h.forcedEnds[e.Proc], forcedEnd{e.At, never, e.Client})
	case EndedAll:
		all := h.forcedEnds[e.Proc]
		all[len(all)-1].to = e.At
	case Begins:
		h.processStarts++
		h.closeForcedEnds(e)
	case Ends:
		h.processEnds = append(h.processEnds, e)
	case Fails:
		h.processFailures = append(h.processFailures, e)
	default:
		h.addWorkerEvent(e)
	}
}

func (h *history) addWorkerEvent(e Event) {
	e.Name = h.internName(e.Name)
	id := workerID{e.Proc, e.Worker}
	switch e.Step {
	case Breaks:
		h.lastBreaks[id] = &forcedEnd{from: e.At, to: never}
		h.breaks[e.Name] = append(h.breaks[e.Name], h.lastBreaks[id])
		return
	case Broke:
		h.lastBreaks[id].to = e.At
		if e.Err != "" {
			h.lastBreaks[id].to += lateBreakBound
		}
		return
	}
	if e.Step == Asks {
		h.attempts++
		h.lastAttempts[id] = &lease{
			name: e.Name, proc: e.Proc, worker: e.Worker, try: e.Try, waits: e.Waits,
			requestedAt: e.At, maybeForgottenAt: never, events: []Event{e},
		}
		return
	}
	l := h.lastAttempts[id]
	if l == nil || l.try != e.Try {
		return
	}
	l.addEvent(e)
	if e.Step == Refused && e.Held {
		l.refusedAt = e.At
		h.refusals = append(h.refusals, l)
	}
	if e.Step == Got {
		h.leases = append(h.leases, l)
		if l.waits {
			h.waits = append(h.waits, l)
		}
	}
}

// lateBreakBound is how much later than its reply a Break with an unknown outcome may take
// effect.
const lateBreakBound = 15 * time.Second

// closeForcedEnds bounds the forced ends that a killed process had begun, when its
// successor begins.
func (h *history) closeForcedEnds(started Event) {
	for i := range h.forcedEnds[started.Proc] {
		e := &h.forcedEnds[started.Proc][i]
		e.to = min(e.to, started.At)
	}
	for id, e := range h.lastBreaks {
		if id.proc == started.Proc {
			e.to = min(e.to, started.At+lateBreakBound)
		}
	}
}

// internName returns the one copy of a name that is kept.
func (h *history) internName(name string) string {
	if _, ok := h.internedNames[name]; !ok {
		h.internedNames[name] = name
	}
	return h.internedNames[name]
}

// finalize completes the leases when all events have been added.
func (h *history) finalize() {
	for _, l := range h.leases {
		h.endOnDeath(l)
		h.endOnForcedEnd(l)
	}
	slices.SortFunc(h.leases, func(l, b *lease) int { return cmp.Compare(l.grantedAt, b.grantedAt) })
	h.startedAt = min(h.startedAt, h.endedAt)
}

// addEvent adds the next event of an acquisition. Of consecutive checks of the lock, it
// keeps only the last one.
func (l *lease) addEvent(e Event) {
	last := &l.events[len(l.events)-1]
	switch {
	case e.Step == Reads, e.Step == Writes, e.Step == Hands:
	case e.Step == Sees && last.Step == Sees:
		*last = e
	default:
		l.events = append(l.events, e)
	}
	switch e.Step {
	case Got:
		l.grantedAt, l.token, l.validUntil = e.At, e.Token, e.Until
		l.underDo, l.firstClient, l.lastClient = e.Under, e.Client, e.Client
	case Adopts:
		l.validUntil, l.lastClient = e.Until, e.Client
	case Sees, Extends:
		if l.releasedAt == 0 && l.ctxEndedAt == 0 {
			l.validUntil = max(l.validUntil, e.Until)
		}
	case Loses, Releases:
		l.validUntil = min(l.validUntil, e.At)
		if e.Step == Releases {
			l.workEndedAt = e.At
		}
	case Released:
		if e.Err == "" {
			l.releasedAt = e.At
			l.doReturnedNil = e.Under
		}
	case CtxEnds: // the holder has been notified
		l.ctxEndedAt = e.At
		if !l.underDo || e.Lost { // else the lock is to last until the work has ended
			l.validUntil = min(l.validUntil, e.At)
		}
	}
}

// addFault adds the begin or the end of a fault that the coordinator injected.
func (h *history) addFault(e Event) {
	all, of := h.processFaults, e.Proc
	if e.Server > 0 {
		all, of = h.serverFaults, e.Server
	}
	if e.Step == Harm {
		if e.Fault != Outage || e.Server == 1 { // one for all servers
			h.faultCounts[e.Fault]++
		}
		all[of] = append(all[of], interval{e.At, never, e.Fault})
		if e.Fault == Kill {
			h.processDeaths[e.Proc] = append(h.processDeaths[e.Proc], interval{e.At, e.At, e.Fault})
		}
		return
	}
	for i, s := range all[of] {
		if s.to == never {
			all[of][i].to = e.At
		}
	}
}

// endOnDeath ends the validity of a lease at the death of its process. The process may live
// on for a moment after its kill is logged. A lease counts up to the kill, or up to its
// last event if that is later.
func (h *history) endOnDeath(l *lease) {
	for _, death := range h.processDeaths[l.proc] {
		if death.to >= l.grantedAt {
			l.validUntil = min(l.validUntil, max(death.from, l.events[len(l.events)-1].At))
			return
		}
	}
}

// endOnForcedEnd ends the validity of a lease when its own process released all locks of
// the client, unless Do was to wait for its work, and when a worker broke the lock.
func (h *history) endOnForcedEnd(l *lease) {
	cut := func(e forcedEnd) bool {
		if l.requestedAt > e.to || l.validUntil < e.from {
			return false
		}
		l.validUntil = min(l.validUntil, max(e.from, l.grantedAt))
		return true
	}
	for _, e := range h.forcedEnds[l.proc] {
		if !l.underDo && l.firstClient <= e.client && e.client <= l.lastClient {
			cut(e)
		}
	}
	for _, e := range h.breaks[l.name] {
		l.maybeBroken = cut(*e) || l.maybeBroken
	}
}

// markForgettable marks the leases that the store may have forgotten, because a server, or
// the process of the lease, had a fault that the store does not promise to survive.
func (h *history) markForgettable(survives func(Fault) bool) {
	for _, l := range h.leases {
		l.markForgettable(h.processFaults[l.proc], survives)
		for _, intervals := range h.serverFaults {
			l.markForgettable(intervals, survives)
		}
	}
}

func (l *lease) markForgettable(intervals []interval, survives func(Fault) bool) {
	for _, s := range intervals {
		if !survives(s.fault) && s.from <= l.validUntil && s.to >= l.requestedAt {
			l.maybeForgottenAt = min(l.maybeForgottenAt, max(s.from, l.requestedAt))
		}
	}
}
