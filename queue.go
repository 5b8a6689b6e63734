package holdfast

import (
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A nameQueue has what a Client has of one name: its leases, and the line of its callers that wait
// behind one of them, the head, for an exclusive lock. They are served first come, first served.
// The head stays in front until its release has returned. Shared and limited callers are in no
// line: each has an entry in the store. A call without a place, a single attempt or one with
// MaxAttempts, is in no line either, until it holds the lock.
type nameQueue struct {
	leases     []*lease
	head       *lease        // one of the leases; nil if there is none
	line       []*acquireOp  // empty without a head
	known      error         // what the last answer has shown: a HeldError, or why that is not known
	answeredAt time.Duration // when the store has answered last
	failing    time.Duration // when the outage began, or is announced to end; 0 without one
	turnEnd    time.Duration // until when the head is passed on to the line
}

// defaultLocalTurn is Config.LocalTurn if it is 0. It is long enough to make the requests to the
// store rare, and too short to be noticed by the clients that wait.
const defaultLocalTurn = 10 * time.Millisecond

// enter gives the operation a lease in the queue of the name, or a Lock of a lease that it can
// join, or puts it in the line. A call without a place goes to the store beside the line. A single
// attempt fails if this Client holds the lock. The caller holds c.mu.
func (a *acquireOp) enter() error {
	c, exclusive := a.c, a.options.limit() == 0
	full := c.config.Prefix + a.name
	q := c.queues[full]
	if q == nil {
		if q = c.spareQueue; q == nil {
			q = &nameQueue{}
		}
		c.spareQueue, c.queues[full] = nil, q
	}
	a.queue = q
	switch {
	case a.options.Reentrant && a.join():
		return nil
	case exclusive && a.try && q.head != nil && q.head.isHeld():
		return &HeldError{Record: q.head.record(), Self: true}
	case exclusive && a.place > 0 && q.head != nil:
		q.line = append(q.line, a)
		return nil
	}
	l := c.newLease(a, full)
	if a.ticket != nil {
		l.fromTicket(a.ticket)
	}
	if q.leases = append(q.leases, l); exclusive && a.place > 0 {
		q.head = l
	}
	return nil
}

// replace puts another lease in the place of one, or none with nil.
func (q *nameQueue) replace(old, l *lease) {
	i := slices.Index(q.leases, old)
	switch {
	case i < 0:
		return
	case l == nil:
		q.leases = slices.Delete(q.leases, i, i+1)
	default:
		q.leases[i] = l
	}
	if q.head == old {
		q.head = l
	}
}

// popLine takes the first operation from the line, and wakes it.
func (q *nameQueue) popLine() *acquireOp {
	a := q.line[0]
	q.line[0] = nil
	q.line = q.line[1:]
	a.signal()
	return a
}

// leaveLine takes the operation from the line, if it is there. The caller holds c.mu.
func (a *acquireOp) leaveLine() {
	a.queue.line = slices.DeleteFunc(a.queue.line, func(other *acquireOp) bool { return other == a })
}

// leases yields all leases of the Client. The caller holds c.mu.
func (c *Client) leases(yield func(*lease) bool) {
	for _, q := range c.queues {
		for _, l := range q.leases {
			if !yield(l) {
				return
			}
		}
	}
}

// join gives a reentrant operation a further Lock of a reentrant hold of the Client, and reports
// whether there is one. The caller holds c.mu.
func (a *acquireOp) join() bool {
	for _, l := range a.queue.leases {
		if l.options.Reentrant && l.op == nil && l.isHeld() && l.locks[0].contextErr() == nil {
			a.leaveLine()
			a.lock = &Lock{lease: l, holder: l.first.holder, lockContext: lockContext{c: a.c, valuesCtx: a.ctx}}
			l.locks = append(l.locks, a.lock)
			return true
		}
	}
	return false
}

// During a local turn, a lease that is released goes to the first of the line of the same Client,
// under the next token, without a request. A turn begins with the grant of the store and lasts
// Config.LocalTurn. After it the lock is released to the store, where all Clients compete.

// tokensForLine returns how many tokens the operation requests while others of its Client are in
// line: several if the line is behind it. The caller holds c.mu.
func (a *acquireOp) tokensForLine() int {
	q, g := a.queue, &a.c.guarantees
	if q.head != a.lease || a.c.config.LocalTurn <= 0 || !g.Queue || !a.options.passableTo(&q.line[0].options) {
		return 1
	}
	return max(min(g.Tokens, driver.MaxTokens), 1)
}

// passableTo reports whether a lease with these options may be passed on to a call with the options
// of next. Options that bind a hold to its acquisition forbid it.
func (o *Options) passableTo(next *Options) bool {
	for _, of := range [...]*Options{o, next} {
		if of.MaxHold > 0 || of.NoRenew || of.Reentrant || of.Detached {
			return false
		}
	}
	return o.TTL == next.TTL && maps.Equal(o.Metadata, next.Metadata)
}

// passOn gives a lease that its holder has released to the first of the line, and reports whether
// it has. It does so during the turn, while a token is left and the lease is surely held: no
// renewal is due, in flight, or has failed, no notice has come, and the lease does not outlast its
// TTL. The caller holds c.mu.
func (l *lease) passOn() bool {
	c, q := l.c, l.c.queues[l.name]
	if q.head != l || len(q.line) == 0 || c.closed || !l.tokens.has(l.tokens.own+1) {
		return false
	}
	now := c.clock.now()
	if now >= q.turnEnd || now >= l.due || l.inFlight > 0 || l.look != noLook ||
		l.longest > l.options.TTL || !l.options.passableTo(&q.line[0].options) {
		return false
	}
	a := q.popLine()
	next := c.newLease(a, l.name)
	next.owner, next.state, next.op, next.tokens, next.confirmed = l.owner, held, nil, l.tokens, l.confirmed
	next.since = now
	next.tokens.own++
	next.deadline.Store(l.deadline.Load())
	a.lock = &next.first
	q.replace(l, next)
	next.lookAt(now, l.due)
	return true
}
