//go:build unix

package torture

import (
	"bufio"
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// A lease is what the log shows of one time that a worker held a lock, or tried to acquire it.
type lease struct {
	name   string
	proc   int
	worker int
	try    int
	waits  bool // it waits for the lock
	token  int64

	limit int // how many may hold the lock, this one included: 1 for an exclusive lock

	requestedAt time.Duration // before the request
	turnFrom    time.Duration // before the request of the lease that was passed on to it
	grantedAt   time.Duration // after the reply
	refusedAt   time.Duration // after the reply, if it failed

	// validUntil is the time up to which the worker could rely on the lock, as far as is known: its
	// release, the loss that it noticed, its death, or the deadline that it last saw, whichever is
	// first.
	validUntil time.Duration

	// seenAt is when the worker last saw that it had the lock.
	seenAt time.Duration

	// releasedAt is when the store had released the lock at the latest, 0 if it was not released.
	releasedAt time.Duration

	// maybeForgottenAt is the time from which the store may have forgotten the lease, because of a
	// fault that it does not promise to survive.
	maybeForgottenAt time.Duration

	foreign bool // it is one of a client of another kind
	client  int  // the client of the process that had it

	// underDo reports that the lock was held by Do. Then workEndedAt is when the work had ended,
	// and doReturnedNil whether Do reported that the lock had been held until then.
	underDo       bool
	workEndedAt   time.Duration
	doReturnedNil bool

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
	failedWaits     []*lease           // waits that ended without a grant
	processFaults   map[int][]interval // of each process: when it did not run, or had no connection to its store
	serverFaults    map[int][]interval // of each server
	processDeaths   map[int][]interval // of each process: from the kill to its end
	processEnds     []Event
	processFailures []Event
	forcedEnds      map[int][]forcedEnd // of each process: when all locks of a client were ended
	refusals        []*lease            // with ErrHeld
	hangs           []time.Duration     // when a request failed because the store hung
	processStarts   int
	faultCounts     map[Fault]int
	attempts        int
	foreignGrants   int
	startedAt       time.Duration
	endedAt         time.Duration

	lastAttempts map[[2]int]*lease // the last acquisition of each process and worker, and its outcome
}

// A forcedEnd is a time in which locks were ended before they ran out.
type forcedEnd struct {
	from, to time.Duration
	client   int
}

func newHistory() *history {
	return &history{
		processFaults: map[int][]interval{}, serverFaults: map[int][]interval{}, processDeaths: map[int][]interval{},
		forcedEnds: map[int][]forcedEnd{}, faultCounts: map[Fault]int{}, startedAt: never, lastAttempts: map[[2]int]*lease{},
	}
}

// readHistory reads the logs of all processes. It reads line by line, because the logs of ten
// minutes have millions of lines.
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
		if e := (Event{}); json.Unmarshal(lines.Bytes(), &e) == nil { // else a kill interrupted the write
			addEvent(e)
		}
	}
	return lines.Err()
}

// addEvent adds the next event. The events of one worker come in the order of time, and so do those
// of the coordinator.
func (h *history) addEvent(e Event) {
	h.startedAt, h.endedAt = min(h.startedAt, e.At), max(h.endedAt, e.At)
	if strings.Contains(e.Err, "a process is stopped in the middle of a request") { // of a store in files
		h.hangs = append(h.hangs, e.At)
	}
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
	id := [2]int{e.Proc, e.Worker}
	if e.Step == Asks {
		if !e.Foreign {
			h.attempts++
		}
		h.lastAttempts[id] = &lease{
			name: e.Name, proc: e.Proc, worker: e.Worker, try: e.Try, waits: e.Waits, foreign: e.Foreign,
			limit: max(e.Limit, 1), requestedAt: e.At, maybeForgottenAt: never, events: []Event{e},
		}
		return
	}
	l := h.lastAttempts[id]
	if l == nil || l.try != e.Try {
		return
	}
	l.addEvent(e)
	if e.Step == Refused {
		l.refusedAt = e.At
		if e.Held {
			h.refusals = append(h.refusals, l)
		}
		if l.waits {
			h.failedWaits = append(h.failedWaits, l)
		}
	}
	if e.Step == Got {
		h.leases = append(h.leases, l)
		if l.foreign {
			h.foreignGrants++
		}
		if l.waits {
			h.waits = append(h.waits, l)
		}
	}
}

// closeForcedEnds bounds the forced ends and the waits that a killed process had begun, when its
// successor begins.
func (h *history) closeForcedEnds(started Event) {
	for i := range h.forcedEnds[started.Proc] {
		e := &h.forcedEnds[started.Proc][i]
		e.to = min(e.to, started.At)
	}
	for id, l := range h.lastAttempts {
		if id[0] == started.Proc && l.waits && l.grantedAt == 0 && l.refusedAt == 0 {
			l.refusedAt = started.At
			h.failedWaits = append(h.failedWaits, l)
		}
	}
}

// finalize completes the leases when all events have been added.
func (h *history) finalize() {
	h.findLocalTurns()
	for _, l := range h.leases {
		h.endOnDeath(l)
		h.endOnForcedEnd(l)
	}
	slices.SortFunc(h.leases, func(l, b *lease) int { return cmp.Compare(l.grantedAt, b.grantedAt) })
	h.startedAt = min(h.startedAt, h.endedAt)
}

// findLocalTurns finds leases that were passed on within a client: they have the next token of the
// same grant. Tokens of different grants of an exclusive lock are further apart.
func (h *history) findLocalTurns() {
	byToken := slices.SortedStableFunc(slices.Values(h.leases), func(l, b *lease) int {
		return cmp.Or(cmp.Compare(l.name, b.name), cmp.Compare(l.token, b.token))
	})
	for i, l := range byToken {
		l.turnFrom = l.requestedAt
		if i == 0 {
			continue
		}
		last := byToken[i-1]
		if last.name == l.name && last.token != 0 && last.token+1 == l.token && last.proc == l.proc && last.client == l.client &&
			last.limit == 1 && l.limit == 1 {
			l.turnFrom = min(last.turnFrom, l.requestedAt)
		}
	}
}

// addEvent adds the next event of an acquisition. Of consecutive checks of the lock, it keeps only
// the last one.
func (l *lease) addEvent(e Event) {
	last := &l.events[len(l.events)-1]
	if e.Step == Sees && last.Step == Sees {
		*last = e
	} else {
		l.events = append(l.events, e)
	}
	switch e.Step {
	case Got:
		l.grantedAt, l.token, l.validUntil = e.At, e.Token, e.Until
		l.underDo, l.client = e.Under, e.Client
	case Sees, Extends:
		if l.releasedAt == 0 && l.ctxEndedAt == 0 {
			l.validUntil, l.seenAt = max(l.validUntil, e.Until), e.At
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

// inWay returns the leases that exclude l, or none: with l they are more than the limit of one of
// them. If l or another lease is exclusive, one is returned.
func (l *lease) inWay(others []*lease) []*lease {
	limit := l.limit
	for _, other := range slices.Backward(others) {
		if l.limit == 1 || other.limit == 1 {
			return []*lease{other}
		}
		limit = min(limit, other.limit)
	}
	if len(others) >= limit {
		return others
	}
	return nil
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

// endOnDeath ends the validity of a lease at the death of its process. The process may live on for
// a moment after its kill is logged. A lease counts up to the kill, or up to its last event if that
// is later.
func (h *history) endOnDeath(l *lease) {
	for _, death := range h.processDeaths[l.proc] {
		if death.to >= l.grantedAt {
			l.validUntil = min(l.validUntil, max(death.from, l.events[len(l.events)-1].At))
			return
		}
	}
}

// endOnForcedEnd ends the validity of a lease when its own process released all locks of the
// client, unless Do was to wait for its work. What was held when all locks had been released was
// not granted before.
func (h *history) endOnForcedEnd(l *lease) {
	for _, e := range h.forcedEnds[l.proc] {
		if !l.underDo && e.client == l.client && l.seenAt <= e.to && l.requestedAt <= e.to && l.validUntil >= e.from {
			l.validUntil = min(l.validUntil, max(e.from, l.requestedAt))
		}
	}
}

// markForgettable marks the leases that the store may have forgotten, because a server, or the
// process of the lease, had a fault that the store does not promise to survive. One that was passed
// on is as old as the first of its local turn.
func (h *history) markForgettable(survives func(Fault) bool) {
	for _, l := range h.leases {
		l.maybeForgottenAt = never
		for _, intervals := range append(slices.Collect(maps.Values(h.serverFaults)), h.processFaults[l.proc]) {
			for _, s := range intervals {
				if !survives(s.fault) && s.from <= l.validUntil && s.to >= l.turnFrom {
					l.maybeForgottenAt = min(l.maybeForgottenAt, max(s.from, l.turnFrom))
				}
			}
		}
	}
}
