//go:build unix

package torture

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A Violation is a promise that was broken.
type Violation struct {
	// Kind is the promise in a word or two.
	Kind string `json:"kind"`

	// Text describes what happened.
	Text string `json:"text"`

	// Events are the shortest part of the history that shows the violation.
	Events []Event `json:"events,omitempty"`
}

// The promises, as the Kind of a Violation.
const (
	kindOverlap = "two holders"
	kindLimit   = "above the limit"
	kindToken   = "token order"
	kindContext = "late context"
	kindWait    = "stuck waiter"
	kindLeak    = "left behind"
	kindProcess = "failed process"
	kindNil     = "false nil"
	kindHeld    = "false held"
)

// A checker checks a history against the promises of a lock.
type checker struct {
	history         *history
	ttl             time.Duration
	sessions        bool          // locks last for as long as the session of their holder
	maxWait         time.Duration // of a wait for a free lock
	maxContextDelay time.Duration // of the end of a context, on a busy machine
	fenced          bool

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

// newViolation returns a violation with the events of the leases, and the faults of their processes
// and of the servers meanwhile.
func (h *history) newViolation(kind, text string, leases []*lease) Violation {
	v := Violation{Kind: kind, Text: text}
	if len(leases) == 0 {
		return v
	}
	from, to := never, time.Duration(0)
	for _, l := range leases {
		v.Events = append(v.Events, l.events...)
		from, to = min(from, l.grantedAt), max(to, l.grantedAt)
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
			c.checkTokens(leases)
		}
		c.checkContexts(leases)
		c.checkDoResults(leases)
	}
	c.checkRefusals()
	for _, w := range c.history.waits {
		c.checkWait(w, names[w.name])
	}
	for _, e := range c.history.processEnds {
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
		known := slices.DeleteFunc(slices.Clone(valid), func(v *lease) bool { return v.maybeForgottenAt <= l.grantedAt })
		add, inWay := c.addViolation, l.inWay(known)
		if inWay == nil || l.maybeForgottenAt <= l.grantedAt {
			add, inWay = c.allowViolation, l.inWay(valid)
		}
		switch {
		case inWay == nil:
		case l.limit == 1 || inWay[0].limit == 1:
			add(kindOverlap, fmt.Sprintf("%s was relied on by two for %v",
				l.name, min(inWay[0].validUntil, l.validUntil)-l.grantedAt), inWay[0], l)
		default:
			add(kindLimit, fmt.Sprintf("%s was relied on by %d, above a limit", l.name, len(inWay)+1), append(slices.Clone(inWay), l)...)
		}
		valid = append(valid, l)
		c.mostTogether = max(c.mostTogether, len(valid))
	}
}

// checkTokens finds a grant with a token that is not greater than that of a grant that had returned
// before this one was requested, two leases with the same token, and a change of the token of a
// lease.
func (c *checker) checkTokens(leases []*lease) {
	byRequest := slices.SortedFunc(slices.Values(leases), func(l, b *lease) int { return cmp.Compare(l.requestedAt, b.requestedAt) })
	var greatest *lease
	next := 0
	for _, l := range byRequest {
		for ; next < len(leases) && leases[next].grantedAt < l.requestedAt; next++ {
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

// nextHolders yields each lease with the lease granted next that cannot be beside it, or nil. The
// leases are in the order of their grants. One that was over when its grant was seen is the next of
// none: it may have been granted before.
func nextHolders(leases []*lease) iter.Seq2[*lease, *lease] {
	return func(yield func(l, next *lease) bool) {
		var next, nextExclusive *lease
		for _, l := range slices.Backward(leases) {
			if l.limit > 1 && !yield(l, nextExclusive) || l.limit == 1 && !yield(l, next) {
				return
			}
			if l.validUntil <= l.grantedAt {
				continue
			}
			if next = l; l.limit == 1 {
				nextExclusive = l
			}
		}
	}
}

// checkContexts finds a context that was seen to end after the next holder had the lock, by more
// than a busy machine explains.
func (c *checker) checkContexts(leases []*lease) {
	for l, next := range nextHolders(leases) {
		if next == nil || l.releasedAt != 0 {
			continue
		}
		lateBy := l.ctxEndedAt - next.grantedAt
		if l.ctxEndedAt == 0 || lateBy <= c.maxContextDelay || c.history.hadProcessFault(l.proc, l.grantedAt, l.ctxEndedAt) {
			continue
		}
		add := c.addViolation
		if l.maybeForgottenAt <= next.grantedAt {
			add = c.allowViolation
		}
		add(kindContext, fmt.Sprintf("the context of %s ended %v after the next holder had the lock", l.name, lateBy), l, next)
	}
}

// checkDoResults finds work under Do that lasted longer than its lock, although Do returned nil.
// The leases are in the order of their grants.
func (c *checker) checkDoResults(leases []*lease) {
	for l, next := range nextHolders(leases) {
		switch {
		case !l.underDo || !l.doReturnedNil:
		case l.ctxEndedAt != 0 && l.ctxEndedAt < l.workEndedAt:
			c.addViolation(kindNil, fmt.Sprintf("Do returned nil although the context of its work on %s had ended %v before", l.name, l.workEndedAt-l.ctxEndedAt), l)
		case next != nil && next.grantedAt < l.workEndedAt && l.maybeForgottenAt == never:
			c.addViolation(kindNil, fmt.Sprintf("Do returned nil although another had been granted %s %v before its work ended", l.name, l.workEndedAt-next.grantedAt), l, next)
		}
	}
}

// checkRefusals finds attempts that were refused with ErrHeld at a time when the lock cannot have
// been held: all servers had been stopped for longer than a TTL when the attempt began, and were
// still stopped when it returned. A session whose server is stopped goes on until its client ends
// it, a TTL after the last renewal that may have been applied.
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

// hadProcessFault reports whether a process was stopped, killed or partitioned between two times.
func (h *history) hadProcessFault(proc int, from, to time.Duration) bool {
	return slices.ContainsFunc(h.processFaults[proc], func(s interval) bool { return s.from <= to && s.to >= from })
}

// checkWait finds a waiter that stayed blocked while the lock was free. Waiters of paused, killed
// or partitioned processes, waiters behind another one of such a process, and outages of the store
// are exempt. A waiter that tolerates others also waits behind waiters that do not tolerate the
// holders.
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
		case w.limit == 1:
			blocked = append(blocked, interval{from: l.grantedAt, to: l.latestEnd(c.ttl)})
		case l.limit != driver.Shared || w.limit != driver.Shared:
			blocked = append(blocked, interval{from: l.requestedAt, to: l.latestEnd(c.ttl)})
		}
	}
	for _, l := range c.history.failedWaits {
		if w.limit > 1 && l.limit != driver.Shared && l.name == w.name {
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

// outages returns the times, in order and disjoint, in which the store could grant nothing: a
// majority of its n servers had a fault, or had recovered from one less than recovery ago. For a
// single server that is any fault. A fault of a minority of a quorum is no outage. The pause of a
// process in which the store hung is one.
func (h *history) outages(n int, recovery time.Duration) []interval {
	type change struct {
		at    time.Duration
		delta int
	}
	n = max(n, 1) // a store without servers
	var changes []change
	for _, intervals := range h.serverFaults {
		for _, s := range intervals {
			changes = append(changes, change{s.from, 1}, change{min(s.to, never-recovery) + recovery, -1})
		}
	}
	majority := n/2 + 1
	for _, intervals := range h.processFaults {
		for _, s := range intervals {
			hung := func(at time.Duration) bool { return s.from < at && at < s.to }
			if s.fault == Pause && slices.ContainsFunc(h.hangs, hung) {
				changes = append(changes, change{s.from, majority}, change{s.to, -majority})
			}
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), b.delta-a.delta) })
	var outages []interval
	down := 0
	for _, t := range changes {
		was := n-down < majority
		down += t.delta
		is := n-down < majority
		switch {
		case is && !was:
			outages = append(outages, interval{from: t.at, to: never})
		case was && !is:
			outages[len(outages)-1].to = t.at
		}
	}
	return outages
}

// stopSlack is how much longer than its TTL a lock may last on a busy machine, as its holder sees
// it.
const stopSlack = 100 * time.Millisecond

// serverStops returns the times in which all servers of the store were stopped.
func (h *history) serverStops() []interval {
	var stops []interval
	for _, intervals := range h.serverFaults {
		n := 0
		for _, s := range intervals {
			if s.fault != Outage {
				continue
			}
			if n == len(stops) {
				stops = append(stops, s)
			}
			stops[n].from, stops[n].to = max(stops[n].from, s.from), min(stops[n].to, s.to)
			n++
		}
	}
	return stops
}

// longestWithoutOutage returns the longest time between two moments without an outage.
func longestWithoutOutage(from, to time.Duration, outages []interval) time.Duration {
	var most time.Duration
	for _, o := range outages {
		if o.to <= from {
			continue
		}
		if o.from >= to {
			break
		}
		most = max(most, o.from-from)
		from = o.to
	}
	return max(most, to-from)
}
