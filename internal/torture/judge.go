//go:build unix

package torture

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A Violation is a promise that was not kept.
type Violation struct {
	// Kind is the promise in a word or two.
	Kind string `json:"kind"`

	// Text says what happened.
	Text string `json:"text"`

	// Events are the shortest part of the history that shows it.
	Events []Event `json:"events,omitempty"`

	holds []*hold // that it is about
}

// The promises, as the Kind of a Violation.
const (
	kindOverlap  = "two holders"
	kindToken    = "token order"
	kindRegister = "lost update"
	kindContext  = "late context"
	kindWait     = "stuck waiter"
	kindLeft     = "left behind"
	kindProcess  = "failed process"
	kindModel    = "not linearizable"
)

// A court judges a history.
type court struct {
	h      *history
	ttl    time.Duration
	bound  time.Duration // of a wait for a free lock
	late   time.Duration // by which a context may be late on a busy machine
	fenced bool

	outages []stretch // when the store could grant nothing

	violations []Violation
	outside    []Violation // of what the store does not promise
}

func (c *court) find(kind, text string, holds ...*hold) {
	c.violations = append(c.violations, c.h.violation(kind, text, holds))
}

// excuse finds what the store does not answer for.
func (c *court) excuse(kind, text string, holds ...*hold) {
	c.outside = append(c.outside, c.h.violation(kind, text, holds))
}

// violation tells the story of the holds, and what was done to their processes
// and to the servers meanwhile.
func (h *history) violation(kind, text string, holds []*hold) Violation {
	v := Violation{Kind: kind, Text: text, holds: holds}
	if len(holds) == 0 {
		return v
	}
	from, to := never, time.Duration(0)
	for _, a := range holds {
		v.Events = append(v.Events, a.events...)
		from, to = min(from, a.got), max(to, a.got)
	}
	for _, a := range holds {
		v.Events = append(v.Events, told(h.harmed[a.proc], Event{Proc: a.proc}, from, to)...)
	}
	for server, stretches := range h.servers {
		v.Events = append(v.Events, told(stretches, Event{Server: server}, from, to)...)
	}
	slices.SortStableFunc(v.Events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	v.Events = slices.Compact(v.Events) // both may be of one process
	return v
}

// told are the stretches of harm in a time, as events.
func told(stretches []stretch, of Event, from, to time.Duration) []Event {
	var events []Event
	for _, s := range stretches {
		if s.from > to || s.to < from {
			continue
		}
		of.Fault = s.fault
		for step, at := range map[Step]time.Duration{Harm: s.from, Heals: s.to} {
			of.Step, of.At = step, at
			if at != never {
				events = append(events, of)
			}
		}
	}
	return events
}

func (c *court) judge() {
	names := map[string][]*hold{}
	for _, a := range c.h.holds {
		names[a.name] = append(names[a.name], a)
	}
	for _, holds := range names {
		c.overlaps(holds)
		if c.fenced {
			c.tokens(holds)
		}
		c.contexts(holds)
		c.model(holds)
	}
	for _, w := range c.h.waits {
		c.waits(w, names[w.name])
	}
	for _, e := range c.h.ends {
		if e.Goroutines > 0 {
			c.find(kindLeft, fmt.Sprintf("process %d ended with %d goroutines too many", e.Proc, e.Goroutines))
		}
	}
	for _, e := range c.h.fails {
		c.find(kindProcess, fmt.Sprintf("process %d: %s", e.Proc, e.Err))
	}
}

// overlaps finds two who relied on one lock at one time. The holds are in the
// order in which they were got.
func (c *court) overlaps(holds []*hold) {
	var last *hold // the one that was relied on the longest
	for _, a := range holds {
		if last != nil && a.got < last.relied && a.relied > a.got {
			found := c.find
			if min(a.forgot, last.forgot) <= a.got {
				found = c.excuse
			}
			found(kindOverlap, fmt.Sprintf("%s was relied on by two for %v",
				a.name, min(last.relied, a.relied)-a.got), last, a)
		}
		if last == nil || a.relied > last.relied {
			last = a
		}
	}
}

// tokens finds a grant with a token no greater than that of a grant that had
// come back before this one was asked for, and one token for two holds.
func (c *court) tokens(holds []*hold) {
	asked := slices.SortedFunc(slices.Values(holds), func(a, b *hold) int { return cmp.Compare(a.asked, b.asked) })
	seen := map[int64]*hold{}
	var greatest *hold
	next := 0
	for _, a := range asked {
		for ; next < len(holds) && holds[next].got < a.asked; next++ {
			if greatest == nil || holds[next].token > greatest.token {
				greatest = holds[next]
			}
		}
		if greatest != nil && a.token <= greatest.token {
			c.find(kindToken, fmt.Sprintf("%s was granted with token %d after token %d", a.name, a.token, greatest.token), greatest, a)
		}
		if twin := seen[a.token]; twin != nil {
			c.find(kindToken, fmt.Sprintf("%s was granted twice with token %d", a.name, a.token), twin, a)
		}
		seen[a.token] = a
		for _, e := range a.events {
			if e.Token != 0 && e.Token != a.token {
				c.find(kindToken, fmt.Sprintf("the token of a hold of %s changed from %d to %d", a.name, a.token, e.Token), a)
			}
		}
	}
}

// contexts finds a context that was seen to end after the next holder had the
// lock, by more than a busy machine accounts for.
func (c *court) contexts(holds []*hold) {
	for i, a := range holds {
		if i+1 == len(holds) || a.freed != 0 {
			continue
		}
		next := holds[i+1]
		lateBy := a.ctxEnded - next.got
		if a.ctxEnded == 0 || lateBy <= c.late || c.h.harmedIn(a.proc, a.got, a.ctxEnded) {
			continue
		}
		found := c.find
		if a.forgot <= next.got {
			found = c.excuse
		}
		found(kindContext, fmt.Sprintf("the context of %s ended %v after the next holder had the lock", a.name, lateBy), a, next)
	}
}

// harmedIn reports whether a process was stopped, killed or cut off in a time.
func (h *history) harmedIn(proc int, from, to time.Duration) bool {
	for _, s := range h.harmed[proc] {
		if s.from <= to && s.to >= from {
			return true
		}
	}
	return false
}

// waits finds a waiter that was left to wait while the lock was free. Who was
// stopped or cut off meanwhile, or waited behind such a one of its own process,
// has no claim; nor has anybody during an outage of the store.
func (c *court) waits(w wait, holds []*hold) {
	if w.got-w.from <= c.bound || c.h.harmedIn(w.proc, w.from-c.ttl, w.got) {
		return
	}
	free := w.from
	for _, a := range holds {
		if a.got >= w.got {
			break
		}
		if gap := longest(free, a.got, c.outages); a.got > free && gap > c.bound {
			c.stuck(w, gap)
			return
		}
		free = max(free, a.gone(c.ttl))
	}
	if gap := longest(free, w.got, c.outages); gap > c.bound {
		c.stuck(w, gap)
	}
}

func (c *court) stuck(w wait, gap time.Duration) {
	c.find(kindWait, fmt.Sprintf("process %d waited %v for %s, which was free for %v of that", w.proc, w.got-w.from, w.name, gap))
}

// gone is when the store had let go of a hold at the latest.
func (a *hold) gone(ttl time.Duration) time.Duration {
	if a.freed != 0 {
		return a.freed
	}
	return max(a.relied, a.events[len(a.events)-1].At) + ttl + ttl/10
}
