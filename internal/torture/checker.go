//go:build unix

package torture

import (
	"cmp"
	"fmt"
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
	kindToken    = "token order"
	kindRegister = "lost update"
	kindContext  = "late context"
	kindWait     = "stuck waiter"
	kindLeak     = "left behind"
	kindProcess  = "failed process"
	kindOrder    = "not linearizable"
	kindNil      = "false nil"
	kindHeld     = "false held"
)

// A checker checks a history against the promises of a lock.
type checker struct {
	history         *history
	ttl             time.Duration
	maxWait         time.Duration // of a wait for a free lock
	maxContextDelay time.Duration // of the end of a context, on a busy machine
	fenced          bool

	outages []interval // when the store could grant nothing

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
			c.checkOrder(leases)
		}
		c.checkContexts(leases)
		c.checkDoResults(leases)
	}
	c.checkRefusals()
	for _, w := range c.history.waits {
		c.checkWait(w, names[w.name])
	}
	for _, e := range c.history.processEnds {
		if e.Goroutines > 0 {
			c.addViolation(kindLeak, fmt.Sprintf("process %d ended with %d goroutines too many", e.Proc, e.Goroutines))
		}
	}
	for _, e := range c.history.processFailures {
		c.addViolation(kindProcess, fmt.Sprintf("process %d: %s", e.Proc, e.Err))
	}
}

// checkOverlaps finds two leases of one lock that were valid at the same time. The leases
// are in the order of their grants.
func (c *checker) checkOverlaps(leases []*lease) {
	var last *lease // the one that was valid the longest
	for _, l := range leases {
		if last != nil && l.grantedAt < last.validUntil && l.validUntil > l.grantedAt {
			add := c.addViolation
			if min(l.maybeForgottenAt, last.maybeForgottenAt) <= l.grantedAt {
				add = c.allowViolation
			}
			add(kindOverlap, fmt.Sprintf("%s was relied on by two for %v",
				l.name, min(last.validUntil, l.validUntil)-l.grantedAt), last, l)
		}
		if last == nil || l.validUntil > last.validUntil {
			last = l
		}
	}
}

// checkTokens finds a grant with a token that is not greater than that of a grant that had
// returned before this one was requested, two leases with the same token, and a change of the
// token of a lease.
func (c *checker) checkTokens(leases []*lease) {
	byRequest := slices.SortedFunc(slices.Values(leases), func(l, b *lease) int { return cmp.Compare(l.requestedAt, b.requestedAt) })
	seen := map[int64]*lease{}
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
// effect between its request and its answer, when the lease before it has ended, and under a
// greater token than all before. A lease can have ended at any moment from when it was no longer
// valid, or from when the store may have forgotten it, up to the answer to its release. Since
// tokens rise, there is one order to try; and since every step may come as early as it can, one
// pass decides.
func (c *checker) checkOrder(leases []*lease) {
	var free time.Duration // the earliest moment at which the lock can be free
	var last *lease
	for _, l := range slices.SortedStableFunc(slices.Values(leases), func(l, b *lease) int { return cmp.Compare(l.token, b.token) }) {
		released := never
		if l.releasedAt != 0 {
			released = max(l.releasedAt, l.validUntil)
		}
		taken := max(free, l.requestedAt)
		free = max(taken, min(l.validUntil, l.maybeForgottenAt))
		if taken > l.grantedAt || free > released {
			about := slices.DeleteFunc([]*lease{last, l}, func(l *lease) bool { return l == nil })
			c.addViolation(kindOrder, fmt.Sprintf("no order of the grants of %s explains what was seen: token %d cannot have followed", l.name, l.token), about...)
			return
		}
		last = l
	}
}

// checkContexts finds a context that was seen to end after the next holder had the lock, by
// more than a busy machine explains.
func (c *checker) checkContexts(leases []*lease) {
	for i, l := range leases {
		if i+1 == len(leases) || l.releasedAt != 0 {
			continue
		}
		next := leases[i+1]
		lateBy := l.ctxEndedAt - next.grantedAt
		if l.ctxEndedAt == 0 || l.maybeBroken || lateBy <= c.maxContextDelay || c.history.hadProcessFault(l.proc, l.grantedAt, l.ctxEndedAt) {
			continue
		}
		add := c.addViolation
		if l.maybeForgottenAt <= next.grantedAt {
			add = c.allowViolation
		}
		add(kindContext, fmt.Sprintf("the context of %s ended %v after the next holder had the lock", l.name, lateBy), l, next)
	}
}

// checkDoResults finds work under Do that lasted longer than its lock, although
// Do returned nil. The leases are in the order of their grants.
func (c *checker) checkDoResults(leases []*lease) {
	var next *lease // the lease that was granted next
	for _, l := range slices.Backward(leases) {
		switch {
		case !l.underDo || !l.doReturnedNil:
		case l.ctxEndedAt != 0 && l.ctxEndedAt < l.workEndedAt:
			c.addViolation(kindNil, fmt.Sprintf("Do returned nil although the context of its work on %s had ended %v before", l.name, l.workEndedAt-l.ctxEndedAt), l)
		case next != nil && next.grantedAt < l.workEndedAt && l.maybeForgottenAt == never && !l.maybeBroken:
			c.addViolation(kindNil, fmt.Sprintf("Do returned nil although another had been granted %s %v before its work ended", l.name, l.workEndedAt-next.grantedAt), l, next)
		}
		next = l
	}
}

// checkRefusals finds attempts that were refused with ErrHeld at a time when the lock
// cannot have been held: all servers had been stopped for longer than a TTL when the
// attempt began, and were still stopped when it returned.
func (c *checker) checkRefusals() {
	stops := c.history.serverStops()
	for _, l := range c.history.refusals {
		for _, s := range stops {
			if l.requestedAt > s.from+c.ttl+c.ttl/10+stopSlack && l.refusedAt < s.to {
				c.addViolation(kindHeld, fmt.Sprintf("process %d was told that %s is held, when all servers had been stopped for %v",
					l.proc, l.name, l.requestedAt-s.from), l)
			}
		}
	}
}

// hadProcessFault reports whether a process was stopped, killed or partitioned between two
// times.
func (h *history) hadProcessFault(proc int, from, to time.Duration) bool {
	for _, s := range h.processFaults[proc] {
		if s.from <= to && s.to >= from {
			return true
		}
	}
	return false
}

// checkWait finds a waiter that stayed blocked while the lock was free. Waiters of paused,
// killed or partitioned processes, waiters behind another one of such a process, and
// outages of the store are exempt.
func (c *checker) checkWait(w *lease, leases []*lease) {
	if w.grantedAt-w.requestedAt <= c.maxWait || c.history.hadProcessFault(w.proc, w.requestedAt-c.ttl, w.grantedAt) {
		return
	}
	free := w.requestedAt
	for _, l := range leases {
		if l.grantedAt >= w.grantedAt {
			break
		}
		if gap := longestWithoutOutage(free, l.grantedAt, c.outages); l.grantedAt > free && gap > c.maxWait {
			c.addStuckWaiter(w, gap)
			return
		}
		free = max(free, l.latestEnd(c.ttl))
	}
	if gap := longestWithoutOutage(free, w.grantedAt, c.outages); gap > c.maxWait {
		c.addStuckWaiter(w, gap)
	}
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
