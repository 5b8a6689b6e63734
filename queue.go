package holdfast

import (
	"maps"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A nameQueue is the line of a Client's callers that want a lock exclusively. Its head alone has a
// lease; the others wait, first come, first served. The head stays in front while it holds the lock.
// Shared and limited callers are in no such line: each has an entry in the store.
type nameQueue struct {
	head    *lease // nil until the head begins
	waiters []*waiter
	known   error         // what the last answer to the head has shown: see acquireOp.known
	failing time.Duration // since when the store has not answered the head, 0 if it has
	turnEnd time.Duration // until when the lease is passed on to waiters
}

// A waiter is a caller behind the head. It leaves the line with a Lock, with an error, or else as the
// head.
type waiter struct {
	op    *acquireOp
	ready chan struct{} // closed when it leaves the line
	lock  *Lock
	err   error
}

// defaultLocalTurn is Config.LocalTurn if it is 0. It is long enough to make the requests to the
// store rare, and too short to be noticed by the clients that wait.
const defaultLocalTurn = 10 * time.Millisecond

// enter puts the operation in the line of the name, and returns when it is the head, or else with a
// Lock or an error. A single attempt waits for nothing: it goes to the store beside the line, unless
// this Client holds the lock.
func (a *acquireOp) enter() (*Lock, error) {
	c := a.c
	if a.options.limit() != 0 {
		return nil, nil
	}
	c.mu.Lock()
	q := c.queues[a.full]
	if a.options.Reentrant {
		joinable := c.leasesOf(a.full, (*lease).joinable)
		if len(joinable) > 0 {
			lock := joinable[0].join(a)
			c.mu.Unlock()
			return lock, nil
		}
	}
	switch {
	case q == nil:
		if q = c.spareQueue; q == nil {
			q = &nameQueue{}
		}
		c.spareQueue, c.queues[a.full], a.queue = nil, q, q
		c.mu.Unlock()
		return nil, nil
	case a.once && q.head != nil && q.head.isHeld():
		a.known = &HeldError{Record: q.head.record(), Self: true}
		c.mu.Unlock()
		return nil, a.known
	case a.once:
		c.mu.Unlock()
		return nil, nil
	}
	w := &waiter{op: a, ready: make(chan struct{})}
	q.waiters = append(q.waiters, w)
	a.startedAt = c.clock.now()
	a.noteQueue(q)
	c.mu.Unlock()
	a.reportContended()
	var err error
	select {
	case <-w.ready:
	case <-a.ctx.Done():
		err = a.ctx.Err()
	case <-c.closing:
		err = ErrClosed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a.noteQueue(q)
	for i := range q.waiters {
		if q.waiters[i] == w {
			q.waiters = append(q.waiters[:i:i], q.waiters[i+1:]...)
			return nil, err
		}
	}
	switch {
	case w.lock != nil: // perhaps at the moment at which ctx ended
		return w.lock, nil
	case w.err != nil:
		return nil, w.err
	}
	if a.queue = q; err != nil {
		c.promote(a.full, q)
	}
	return nil, err
}

// noteQueue notes what is known of a name for a caller that waits behind the head. The caller holds
// c.mu.
func (a *acquireOp) noteQueue(q *nameQueue) {
	switch {
	case q.head != nil && q.head.isHeld():
		a.known = &HeldError{Record: q.head.record(), Self: true}
	case q.known != nil:
		a.known = q.known
	}
}

// leave takes a lease that has ended from the Client, and makes the first waiter the head in its
// place. The caller holds c.mu.
func (c *Client) leave(l *lease) {
	if l.state == ended {
		return
	}
	l.state = ended
	c.schedule.remove(l)
	if q := c.queues[l.name]; q != nil && q.head == l {
		c.promote(l.name, q)
		return
	}
	delete(c.others, l.owner)
}

// promote makes the first waiter of a queue its head, or ends the queue. The caller holds c.mu.
func (c *Client) promote(full string, q *nameQueue) {
	q.head = nil
	if len(q.waiters) > 0 {
		q.popWaiter()
		return
	}
	delete(c.queues, full)
	*q = nameQueue{waiters: q.waiters[:0]}
	c.spareQueue = q
}

// popWaiter takes the first waiter from the line.
func (q *nameQueue) popWaiter() {
	close(q.waiters[0].ready)
	q.waiters[0] = nil
	q.waiters = q.waiters[1:]
}

// failWaiters gives err to the waiters that have waited for as long as the head, for Config.MaxOutage,
// when the head gives up. The caller holds c.mu.
func (c *Client) failWaiters(q *nameQueue, err error) {
	for len(q.waiters) > 0 && c.clock.now()-q.waiters[0].op.startedAt >= c.outage {
		q.waiters[0].err = err
		q.popWaiter()
	}
}

// findLease returns the lease of an owner, or nil. The caller holds c.mu.
func (c *Client) findLease(full, owner string) *lease {
	if q := c.queues[full]; q != nil && q.head != nil && q.head.owner == owner {
		return q.head
	}
	return c.others[owner]
}

// leasesLocked returns all leases of the Client that match. The caller holds c.mu.
func (c *Client) leasesLocked(match func(*lease) bool) (leases []*lease) {
	for _, q := range c.queues {
		if q.head != nil && match(q.head) {
			leases = append(leases, q.head)
		}
	}
	for _, l := range c.others {
		if match(l) {
			leases = append(leases, l)
		}
	}
	return leases
}

// leasesOf returns the leases of a name that match. The caller holds c.mu.
func (c *Client) leasesOf(full string, match func(*lease) bool) (leases []*lease) {
	if q := c.queues[full]; q != nil && q.head != nil && match(q.head) {
		leases = append(leases, q.head)
	}
	for _, l := range c.others {
		if l.name == full && match(l) {
			leases = append(leases, l)
		}
	}
	return leases
}

// joinable reports whether a reentrant acquisition may share the lease. The caller holds c.mu.
func (l *lease) joinable() bool {
	return l.options.Reentrant && l.op == nil && l.state == held && l.isHeld() && l.openLocks() > 0
}

// join returns a further Lock of the lease, for an operation. The caller holds c.mu.
func (l *lease) join(a *acquireOp) *Lock {
	lock := &Lock{lease: l}
	lock.valuesCtx = a.ctx
	l.joined = append(l.joined, lock)
	return lock
}

// joinWaiters lets the reentrant waiters of a queue join its head, which has got the lock. The caller
// holds c.mu.
func (q *nameQueue) joinWaiters() {
	var others []*waiter
	for _, w := range q.waiters {
		if !w.op.options.Reentrant {
			others = append(others, w)
			continue
		}
		w.lock = q.head.join(w.op)
		close(w.ready)
	}
	q.waiters = others
}

// openLocks returns how many Locks of the lease are not released. The caller holds c.mu.
func (l *lease) openLocks() int {
	open := len(l.joined)
	if !l.first.released {
		open++
	}
	return open
}

// During a local turn, a lease that is released goes to the next waiter of the same Client, under the
// next token, without a request. A turn begins with the grant of the store and lasts
// Config.LocalTurn. After it the lock is released to the store, where all Clients compete.

// tokensToRequest returns how many tokens the head requests: several if others wait behind it. The
// caller holds c.mu.
func (a *acquireOp) tokensToRequest() int {
	q := a.queue
	if q == nil || len(q.waiters) == 0 || a.c.localTurn <= 0 || !a.c.guarantees.Queue ||
		!a.options.passableTo(&q.waiters[0].op.options) {
		return 1
	}
	return max(min(a.c.guarantees.Tokens, driver.MaxTokens), 1)
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

// passOn gives a lease that its holder has released to the first waiter, and reports whether it
// has. It does so during the turn, while a token is left and the lease is surely held: no renewal is
// due, in flight, or has failed, no notice has come, and the lease does not outlast its TTL.
func (l *lease) passOn() bool {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queues[l.name]
	if q == nil || q.head != l || len(q.waiters) == 0 || l.tokens.own == l.tokens.last {
		return false
	}
	now := c.clock.now()
	w := q.waiters[0]
	if now >= q.turnEnd || now >= l.due || l.busy != nil || l.look != noLook || c.closed ||
		l.storeEnd > now+l.options.TTL || !l.options.passableTo(&w.op.options) {
		return false
	}
	next := &lease{
		c: c, name: l.name, owner: l.owner, holder: l.holder, options: w.op.options, state: held,
		tokens: l.tokens, storeEnd: l.storeEnd, since: now, scheduled: scheduled{due: l.due, index: notScheduled},
	}
	next.tokens.own++
	next.deadline.Store(l.deadline.Load())
	next.first.lease, next.first.valuesCtx = next, w.op.ctx
	w.lock = &next.first
	q.head = next
	c.reschedule(next)
	q.popWaiter()
	return true
}
