//go:build unix

package torture

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"
)

// A Violation is a promise that was broken.
type Violation struct {
	// Kind is the promise in a word or two.
	Kind string `json:"kind"`

	// Text describes what happened.
	Text string `json:"text"`

	// Events are the shortest part of the history that shows the violation.
	Events []Event `json:"events,omitempty"`

	leases []*lease // the leases concerned
}

// The promises, as the Kind of a Violation.
const (
	kindOverlap  = "two holders"
	kindLimit    = "above the limit"
	kindToken    = "token order"
	kindRegister = "lost update"
	kindContext  = "late context"
	kindWait     = "stuck waiter"
	kindLeak     = "left behind"
	kindProcess  = "failed process"
	kindOrder    = "not linearizable"
	kindNil      = "false nil"
	kindHeld     = "false held"
	kindTurn     = "out of turn"
)

// A checker checks a history against the promises of a lock.
type checker struct {
	history         *history
	ttl             time.Duration
	sessions        bool          // locks last for as long as the session of their holder
	maxWait         time.Duration // of a wait for a free lock
	maxContextDelay time.Duration // of the end of a context, on a busy machine
	fenced          bool
	passesOver      bool // a place whose client gets no notices loses its turn, and not the place

	outages []interval // when the store could grant nothing

	mostTogether int // leases of one lock that were valid at the same time

	violations []Violation
	outside    []Violation // those that the store does not promise to prevent
}

func (c *checker) addViolation(kind, text string, leases ...*lease) {
	c.violations = append(c.violations, c.history.newViolation(kind, text, leases))
}

// allowViolation records a violation that the store does not promise to prevent.
func (c *checker) allowViolation(kind, text string, leases ...*lease) {
	c.outside = append(c.outside, c.history.newViolation(kind, text, leases))
}

// newViolation returns a violation with the events of the leases, and the faults of their
// processes and of the servers meanwhile.
func (h *history) newViolation(kind, text string, leases []*lease) Violation {
	v := Violation{Kind: kind, Text: text, leases: leases}
	if len(leases) == 0 {
		return v
	}
	from, to := never, time.Duration(0)
	for _, l := range leases {
		v.Events = append(v.Events, l.events...)
		from, to = min(from, l.beginsAt()), max(to, l.grantedAt, l.queuedUntil)
	}
	for _, l := range leases {
		v.Events = append(v.Events, eventsIn(h.processFaults[l.proc], Event{Proc: l.proc}, from, to)...)
	}
	for server, intervals := range h.serverFaults {
		v.Events = append(v.Events, eventsIn(intervals, Event{Server: server}, from, to)...)
	}
	slices.SortStableFunc(v.Events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	v.Events = slices.Compact(v.Events) // both may be of one process
	return v
}

// eventsIn returns the faults between two times as events, made from template.
func eventsIn(intervals []interval, template Event, from, to time.Duration) []Event {
	var events []Event
	for _, s := range intervals {
		if s.from > to || s.to < from {
			continue
		}
		template.Fault = s.fault
		for step, at := range map[Step]time.Duration{Harm: s.from, Heals: s.to} {
			template.Step, template.At = step, at
			if at != never {
				events = append(events, template)
			}
		}
	}
	return events
}

func (c *checker) checkAll() {
	names := map[string][]*lease{}
	for _, l := range c.history.leases {
		names[l.name] = append(names[l.name], l)
	}
	for _, leases := range names {
		c.checkOverlaps(leases)
		if c.fenced {
			fenced := slices.DeleteFunc(slices.Clone(leases), func(l *lease) bool { return l.foreign && l.token == 0 })
			c.checkTokens(fenced)
			c.checkOrder(fenced)
		}
		c.checkContexts(leases)
		c.checkDoResults(leases)
	}
	places := map[string][]*lease{}
	for _, l := range c.history.places {
		places[l.name] = append(places[l.name], l)
	}
	for _, places := range places {
		c.checkTurns(places)
	}
	c.checkRefusals()
	for _, w := range c.history.waits {
		c.checkWait(w, names[w.name])
	}
	for _, e := range c.history.processEnds {
		if e.Goroutines > 0 {
			c.addViolation(kindLeak, fmt.Sprintf("process %d ended with %d goroutines too many", e.Proc, e.Goroutines))
		}
		if e.Err != "" {
			c.addViolation(kindLeak, fmt.Sprintf("when process %d ended, %s", e.Proc, e.Err))
		}
	}
	for _, e := range c.history.processFailures {
		c.addViolation(kindProcess, fmt.Sprintf("process %d: %s", e.Proc, e.Err))
	}
}

// checkOverlaps finds leases of one lock that were valid at the same time and do not tolerate each
// other. The leases are in the order of their grants.
func (c *checker) checkOverlaps(leases []*lease) {
	var valid []*lease // at the time of the grant of l
	for _, l := range leases {
		if l.validUntil <= l.grantedAt {
			continue
		}
		valid = slices.DeleteFunc(valid, func(v *lease) bool { return v.validUntil <= l.grantedAt })
		known := slices.DeleteFunc(slices.Clone(valid), func(v *lease) bool { return v.maybeForgottenBefore(l) <= l.grantedAt })
		add, inWay := c.addViolation, l.inWay(known)
		if inWay == nil || l.maybeForgottenAt <= l.grantedAt {
			add, inWay = c.allowViolation, l.inWay(valid)
		}
		switch {
		case inWay == nil:
		case l.limit == 0 || inWay[0].limit == 0:
			add(kindOverlap, fmt.Sprintf("%s was relied on by two for %v",
				l.name, min(inWay[0].validUntil, l.validUntil)-l.grantedAt), inWay[0], l)
		default:
			add(kindLimit, fmt.Sprintf("%s was relied on by %d, and the limit is %d", l.name, len(inWay)+1, l.limit), append(inWay, l)...)
		}
		valid = append(valid, l)
		c.mostTogether = max(c.mostTogether, len(valid))
	}
}

// checkTokens finds a grant with a token that is not greater than that of a grant that had
// returned before this one was requested, two leases with the same token, and a change of the
// token of a lease.
func (c *checker) checkTokens(leases []*lease) {
	byRequest := slices.SortedFunc(slices.Values(joinTurns(leases)), func(l, b *lease) int { return cmp.Compare(l.takenFrom(), b.takenFrom()) })
	var greatest *lease
	next := 0
	for _, l := range byRequest {
		for ; next < len(leases) && leases[next].grantedAt < l.takenFrom(); next++ {
			if greatest == nil || leases[next].token > greatest.token {
				greatest = leases[next]
			}
		}
		if greatest != nil && l.token <= greatest.token {
			c.addViolation(kindToken, fmt.Sprintf("%s was granted with token %d after token %d", l.name, l.token, greatest.token), greatest, l)
		}
	}
	seen := map[int64]*lease{}
	for _, l := range leases {
		if duplicate := seen[l.token]; duplicate != nil {
			c.addViolation(kindToken, fmt.Sprintf("%s was granted twice with token %d", l.name, l.token), duplicate, l)
		}
		seen[l.token] = l
		for _, e := range l.events {
			if e.Token != 0 && e.Token != l.token {
				c.addViolation(kindToken, fmt.Sprintf("the token of a hold of %s changed from %d to %d", l.name, l.token, e.Token), l)
			}
		}
	}
}

// checkOrder finds leases that cannot have followed each other as a lock's do: each grant takes
// effect between its request and its answer, when the leases that it does not tolerate have ended,
// and under a greater token than all before. A lease can have ended at any moment from when it was
// no longer valid, or from when the store may have forgotten it, up to the answer to its release.
// One pass decides: the tokens give the only possible order, and each step is taken to come as early
// as it can.
func (c *checker) checkOrder(leases []*lease) {
	var taken time.Duration // the earliest moment at which the grant can have taken effect
	var held []*lease       // those that have not ended then, by their earliest end
	var last *lease         // the one that was granted, or had to end, before
	for _, l := range slices.SortedStableFunc(slices.Values(joinTurns(leases)), func(l, b *lease) int { return cmp.Compare(l.token, b.token) }) {
		released := never
		if l.releasedAt != 0 {
			released = max(l.releasedAt, l.validUntil)
		}
		taken = max(taken, l.takenFrom())
		for len(held) > 0 && (held[0].earliestEnd <= taken || l.inWay(held) != nil) {
			if held[0].earliestEnd > taken {
				taken, last = held[0].earliestEnd, held[0]
			}
			held = held[1:]
		}
		l.earliestEnd = max(taken, min(l.validUntil, l.maybeForgottenAt))
		if taken > l.grantedAt || l.earliestEnd > released {
			about := slices.DeleteFunc([]*lease{last, l}, func(l *lease) bool { return l == nil })
			c.addViolation(kindOrder, fmt.Sprintf("no order of the grants of %s explains what was seen: token %d cannot have followed", l.name, l.token), about...)
			return
		}
		last, held = l, append(held, l)
		slices.SortStableFunc(held, func(l, b *lease) int { return cmp.Compare(l.earliestEnd, b.earliestEnd) })
	}
}

// joinTurns returns leases in which those of a limited lock that were passed on are one, as they are
// for the store: with the token and the request of the first, and the end of the last. The store may
// have granted others beside it meanwhile, whose tokens are greater.
func joinTurns(leases []*lease) (joined []*lease) {
	turns := map[*lease]*lease{}
	for _, l := range leases { // in the order of their grants
		turn := turns[l.passedFrom]
		if turn == nil {
			first := *l
			turn = &first
			joined = append(joined, turn)
		}
		turns[l] = turn
		turn.validUntil, turn.releasedAt = max(turn.validUntil, l.validUntil), l.releasedAt
		turn.maybeForgottenAt = min(turn.maybeForgottenAt, l.maybeForgottenAt)
		turn.maybeBroken = turn.maybeBroken || l.maybeBroken
	}
	return joined
}

// nextHolders yields each lease with the lease granted next that cannot be beside it, or nil. The leases are in the order of their grants. One that was over when its grant was
// seen, as after a Break, is the next of none: it may have been granted before.
func nextHolders(leases []*lease) iter.Seq2[*lease, *lease] {
	return func(yield func(l, next *lease) bool) {
		var next, nextExclusive *lease
		for _, l := range slices.Backward(leases) {
			if l.limit != 0 && !yield(l, nextExclusive) || l.limit == 0 && !yield(l, next) {
				return
			}
			if l.validUntil <= l.grantedAt {
				continue
			}
			if next = l; l.limit == 0 {
				nextExclusive = l
			}
		}
	}
}

// checkContexts finds a context that was seen to end after the next holder had the lock, by
// more than a busy machine explains.
func (c *checker) checkContexts(leases []*lease) {
	for l, next := range nextHolders(leases) {
		if next == nil || l.releasedAt != 0 {
			continue
		}
		lateBy := l.ctxEndedAt - next.grantedAt
		if l.ctxEndedAt == 0 || l.maybeBroken || lateBy <= c.maxContextDelay || c.history.hadProcessFault(l.proc, l.grantedAt, l.ctxEndedAt) {
			continue
		}
		add := c.addViolation
		if l.maybeForgottenBefore(next) <= next.grantedAt {
			add = c.allowViolation
		}
		add(kindContext, fmt.Sprintf("the context of %s ended %v after the next holder had the lock", l.name, lateBy), l, next)
	}
}

// checkDoResults finds work under Do that lasted longer than its lock, although
// Do returned nil. The leases are in the order of their grants.
func (c *checker) checkDoResults(leases []*lease) {
	for l, next := range nextHolders(leases) {
		switch {
		case !l.underDo || !l.doReturnedNil:
		case l.ctxEndedAt != 0 && l.ctxEndedAt < l.workEndedAt:
			c.addViolation(kindNil, fmt.Sprintf("Do returned nil although the context of its work on %s had ended %v before", l.name, l.workEndedAt-l.ctxEndedAt), l)
		case next != nil && next.grantedAt < l.workEndedAt && l.maybeForgottenBefore(next) == never && !l.maybeBroken:
			c.addViolation(kindNil, fmt.Sprintf("Do returned nil although another had been granted %s %v before its work ended", l.name, l.workEndedAt-next.grantedAt), l, next)
		}
	}
}

// checkTurns finds an owner that was admitted before one whose place the store had confirmed when
// the request of the former was sent: its token is smaller, or the other had its place still when it
// had been granted. Such a place needs no excuse. One that has expired, or that the store has lost,
// is never granted nor confirmed again, since only the first request of an owner makes one. What an
// owner tolerates makes no difference: those that are admitted together have tokens in their order.
func (c *checker) checkTurns(places []*lease) {
	queued := slices.DeleteFunc(slices.Clone(places), func(l *lease) bool { return !c.keepsTurn(l) })
	slices.SortFunc(queued, func(l, b *lease) int { return cmp.Compare(l.queuedAt, b.queuedAt) })
	admitted := slices.DeleteFunc(slices.Clone(places), func(l *lease) bool { return l.token == 0 || l.requestedAt == 0 })
	slices.SortFunc(admitted, func(l, b *lease) int { return cmp.Compare(l.requestedAt, b.requestedAt) })
	var lastAdmitted, lastQueued *lease // of those before it in the queue
	for _, l := range admitted {
		for ; len(queued) > 0 && queued[0].queuedAt < l.requestedAt; queued = queued[1:] {
			if lastAdmitted == nil || queued[0].token > lastAdmitted.token {
				lastAdmitted = queued[0]
			}
			if lastQueued == nil || queued[0].queuedUntil > lastQueued.queuedUntil {
				lastQueued = queued[0]
			}
		}
		if lastAdmitted != nil && lastAdmitted.token > l.token {
			c.addViolation(kindTurn, fmt.Sprintf("%s was granted with token %d before a place that was made before it, which got token %d",
				l.name, l.token, lastAdmitted.token), lastAdmitted, l)
		} else if lastQueued != nil && lastQueued.queuedUntil > l.grantedAt {
			c.addViolation(kindTurn, fmt.Sprintf("%s was granted with token %d while a place that was made before it waited for %v more",
				l.name, l.token, lastQueued.queuedUntil-l.grantedAt), lastQueued, l)
		}
	}
}

// keepsTurn reports whether a place must be admitted before all places that were made after it. Two
// faults excuse another order. A server may have fallen back to an earlier state, in which it has a
// place again that was granted before. At a store that passesOver, the connection for notices may
// have been cut by a fault, or the client may have found it cut afterwards.
func (c *checker) keepsTurn(l *lease) bool {
	until := max(l.grantedAt, l.queuedUntil)
	during := func(from time.Duration, match func(Fault) bool) func(interval) bool {
		return func(s interval) bool { return match(s.fault) && s.from <= until && s.to >= from }
	}
	isCut := during(l.queuedAt-contextSlack, func(f Fault) bool { return f.isNetworkFault() || f == ServerRestart || f.forgets() })
	for _, intervals := range c.history.serverFaults {
		if slices.ContainsFunc(intervals, during(l.requestedAt, func(f Fault) bool { return f == ServerFailover })) ||
			c.passesOver && slices.ContainsFunc(intervals, isCut) {
			return false
		}
	}
	if c.passesOver && slices.ContainsFunc(c.history.processFaults[l.proc], isCut) {
		return false
	}
	return l.queuedAt != 0 && !(c.passesOver && slices.ContainsFunc(c.history.reconnects[l.proc], func(at time.Duration) bool {
		return at >= l.queuedAt && at <= until+3*c.ttl+contextSlack // a fault lasts for 3 TTLs
	}))
}

// checkRefusals finds attempts that were refused with ErrHeld at a time when the lock
// cannot have been held: all servers had been stopped for longer than a TTL when the
// attempt began, and were still stopped when it returned. A session whose server is stopped goes on
// until its client ends it, a TTL after the last renewal that may have been applied.
func (c *checker) checkRefusals() {
	stops, longest := c.history.serverStops(), c.ttl
	if c.sessions {
		longest *= 2
	}
	for _, l := range c.history.refusals {
		for _, s := range stops {
			if l.requestedAt > s.from+longest+c.ttl/10+stopSlack && l.refusedAt < s.to {
				c.addViolation(kindHeld, fmt.Sprintf("process %d was told that %s is held, when all servers had been stopped for %v",
					l.proc, l.name, l.requestedAt-s.from), l)
			}
		}
	}
}

// hadProcessFault reports whether a process was stopped, killed or partitioned between two
// times. The loss of notices alone is no excuse.
func (h *history) hadProcessFault(proc int, from, to time.Duration) bool {
	for _, s := range h.processFaults[proc] {
		if s.fault != CutNotices && s.from <= to && s.to >= from {
			return true
		}
	}
	return false
}

// checkWait finds a waiter that stayed blocked while the lock was free. Waiters of paused,
// killed or partitioned processes, waiters behind another one of such a process, and
// outages of the store are exempt. A waiter that tolerates others also waits behind waiters that do
// not tolerate the holders.
func (c *checker) checkWait(w *lease, leases []*lease) {
	if w.grantedAt-w.requestedAt <= c.maxWait || c.history.hadProcessFault(w.proc, w.requestedAt-c.ttl, w.grantedAt) {
		return
	}
	free := w.requestedAt
	for _, s := range c.blockedTimes(w, leases) {
		if s.from >= w.grantedAt {
			break
		}
		if gap := longestWithoutOutage(free, s.from, c.outages); s.from > free && gap > c.maxWait {
			c.addStuckWaiter(w, gap)
			return
		}
		free = max(free, s.to)
	}
	if gap := longestWithoutOutage(free, w.grantedAt, c.outages); gap > c.maxWait {
		c.addStuckWaiter(w, gap)
	}
}

// blockedTimes returns when a waiter may have been kept waiting, in the order of the begins: by
// leases that it does not tolerate, and if it tolerates any, by waiters from their requests on.
func (c *checker) blockedTimes(w *lease, leases []*lease) []interval {
	var blocked []interval
	for _, l := range leases {
		switch {
		case l == w:
		case w.limit == 0:
			blocked = append(blocked, interval{from: l.grantedAt, to: l.latestEnd(c.ttl)})
		case l.limit == 0 || l.limit > 0 && w.limit > 0:
			blocked = append(blocked, interval{from: l.requestedAt, to: l.latestEnd(c.ttl)})
		case l.limit > 0:
			blocked = append(blocked, interval{from: l.requestedAt, to: l.grantedAt})
		}
	}
	for _, l := range c.history.failedWaits {
		if w.limit != 0 && l.limit >= 0 && l.name == w.name {
			blocked = append(blocked, interval{from: l.requestedAt, to: l.refusedAt + c.ttl + c.ttl/10})
		}
	}
	slices.SortFunc(blocked, func(s, b interval) int { return cmp.Compare(s.from, b.from) })
	return blocked
}

func (c *checker) addStuckWaiter(w *lease, gap time.Duration) {
	c.addViolation(kindWait, fmt.Sprintf("process %d waited %v for %s, which was free for %v of that", w.proc, w.grantedAt-w.requestedAt, w.name, gap))
}

// latestEnd returns when the store had ended the lease at the latest.
func (l *lease) latestEnd(ttl time.Duration) time.Duration {
	if l.releasedAt != 0 {
		return l.releasedAt
	}
	return max(l.validUntil, l.events[len(l.events)-1].At) + ttl + ttl/10
}
