package holdfast

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A nameQueue is the queue of a Client's callers for one name, with one limit. Its heads
// alone send requests for this name to the store: as many as may hold the lock together. The others
// wait. Callers that want a shared lock are all heads. A nameQueue exists while it has a head.
type nameQueue struct {
	fullName string
	limit    int
	next     *nameQueue // of the same name, with another limit

	first   queueHead             // the first head, which is the only one of an exclusive lock
	heads   int                   // how many there are
	owners  map[string]*queueHead // the heads of a shared or limited lock that have an owner
	waiters *list.List            // of *waiter, first come first served; nil if there was none so far

	// lastAnswer is what the last answer of the store to the head, or the lack of one, showed of the
	// name: a *HeldError if another holds it, any other error if that is in doubt, nil if nothing is
	// known.
	lastAnswer error

	// lastGranted is the lease that was granted last while callers waited: to them the name was
	// held.
	lastGranted *lease

	// failingSince is since when the store has not answered about the name, 0 if it has.
	failingSince time.Duration

	// yieldUntil is when the next head may try after a local turn: other Clients try before it.
	yieldUntil time.Duration
}

// A queueHead is a caller that sends requests for a name. It stays a head while it holds the lock.
// Then the first waiter takes its place.
type queueHead struct {
	queue   *nameQueue
	owner   string          // of the last attempt, for a shared or limited lock
	lease   *lease          // once it holds the lock
	wake    chan struct{}   // ends the pause of the head; has room for one
	grants  []driver.Notice // Granted notices that the head has not read
	noticed bool            // a notice came that has ended no pause yet
	beside  bool            // a try beside the heads, not one of them: its lease is in no queue
}

// hasRoom reports whether another caller can be a head.
func (q *nameQueue) hasRoom() bool {
	switch {
	case q.limit > 0:
		return q.heads < q.limit
	case q.limit == 0:
		return q.heads == 0
	}
	return true
}

// isHeld reports whether every possible head holds the lock, so that the store would refuse another
// request. The caller holds c.mu.
func (q *nameQueue) isHeld() bool {
	if q.limit == 0 {
		return q.first.holds()
	}
	if q.hasRoom() || len(q.owners) < q.heads {
		return false
	}
	for _, h := range q.owners {
		if !h.holds() {
			return false
		}
	}
	return true
}

// holds reports whether it is certain that the store has the lease of the head. The caller holds
// c.mu.
func (h *queueHead) holds() bool {
	l := h.lease
	return l != nil && (l.awaitingWork || l.endReason.Load() == nil && l.c.clock.now() < time.Duration(l.deadline.Load()))
}

// allHeads yields the heads of a queue, and of the others of its name, of a shared or limited lock
// those that have an owner. The caller holds c.mu.
func (q *nameQueue) allHeads() iter.Seq[*queueHead] {
	return func(yield func(*queueHead) bool) {
		for ; q != nil; q = q.next {
			if q.limit == 0 && !yield(&q.first) {
				return
			}
			for _, h := range q.owners {
				if !yield(h) {
					return
				}
			}
		}
	}
}

// findQueue returns the queue of callers with these options, or nil. The caller holds c.mu.
func (c *Client) findQueue(full string, limit int) *nameQueue {
	q := c.queues[full]
	for q != nil && q.limit != limit {
		q = q.next
	}
	return q
}

// removeQueue removes a queue that has no head. The caller holds c.mu.
func (c *Client) removeQueue(q *nameQueue) {
	if first := c.queues[q.fullName]; first != q {
		for first.next != q {
			first = first.next
		}
		first.next = q.next
	} else if q.next != nil {
		c.queues[q.fullName] = q.next
	} else {
		delete(c.queues, q.fullName)
	}
}

// knownError returns why a caller that has waited behind the heads since then did not get the lock: a
// *HeldError if the lock was held, ErrUnavailable if that is in doubt, and nil if it is not known yet.
// The caller holds c.mu.
func (c *Client) knownError(q *nameQueue, since time.Duration) error {
	switch {
	case q.isHeld() && q.lastGranted != nil:
		return &HeldError{Record: q.lastGranted.currentRecord(), Self: true}
	case q.lastAnswer != nil:
		return q.lastAnswer
	case q.lastGranted != nil && q.lastGranted.grantedAt > since:
		return &HeldError{Record: q.lastGranted.currentRecord(), Self: true}
	}
	return nil
}

// recordAnswer records for the callers behind a head what its request has shown of the name.
func (c *Client) recordAnswer(h *queueHead, answer error) {
	if h.beside {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q := h.queue
	q.lastAnswer = answer
	if _, held := answer.(*HeldError); held {
		q.failingSince = 0
	} else if answer != nil && q.failingSince == 0 {
		q.failingSince = c.clock.now()
	}
}

// A waiter is a caller in the queue of a name, behind its head. It leaves the queue as the head, or
// with a lease.
type waiter struct {
	ctx     context.Context
	options Options
	ready   chan struct{} // closed when it leaves the queue

	// One of these is set before ready is closed.
	head   *queueHead // the head that this waiter has become
	join   *lease     // a reentrant lease to join
	passed *lease     // a lease that was passed on to it: see passOn
}

// enqueue makes the operation a head of the name's queue, and returns nil. If there is no room for
// another head, it waits. A single attempt does not wait: it fails if this Client holds the lock, and
// goes beside the heads else. enqueue returns a waiter only with a lease: one that the operation may
// join, or one that was passed on to it.
func (a *acquireOp) enqueue() (*waiter, error) {
	c, limit := a.c, a.options.limit()
	c.mu.Lock()
	q := c.findQueue(a.fullName, limit)
	if a.options.Reentrant {
		if l := c.joinableLease(q, a.fullName); l != nil {
			c.mu.Unlock()
			return &waiter{join: l}, nil
		}
	}
	if q == nil {
		q = &nameQueue{fullName: a.fullName, limit: limit, next: c.queues[a.fullName]}
		q.first.queue = q
		c.queues[a.fullName] = q
	}
	hasRoom := q.hasRoom()
	switch {
	case !hasRoom && !a.singleAttempt:
		return a.waitTurn(q)
	case !hasRoom && q.isHeld() && q.lastGranted != nil:
		a.lastErr = c.knownError(q, 0)
		c.mu.Unlock()
		return nil, a.lastErr
	case !hasRoom:
		a.head = &queueHead{queue: q, beside: true}
	case q.heads > 0:
		a.head = &queueHead{queue: q}
	default:
		a.head = &q.first
	}
	if hasRoom {
		q.heads++
	}
	c.mu.Unlock()
	return nil, nil
}

// joinableLease returns a lease of the name that a reentrant acquisition can join, or nil. The caller
// holds c.mu.
func (c *Client) joinableLease(q *nameQueue, full string) *lease {
	if q != nil && q.first.lease != nil && q.first.lease.joinable() {
		return q.first.lease
	}
	for l := range c.unqueued {
		if l.fullName == full && l.joinable() {
			return l
		}
	}
	return nil
}

// waitTurn waits in the queue until the operation leaves it, and returns what enqueue returns. The
// caller holds c.mu, which waitTurn unlocks.
func (a *acquireOp) waitTurn(q *nameQueue) (*waiter, error) {
	c := a.c
	if q.waiters == nil {
		q.waiters = list.New()
	}
	w := &waiter{ctx: a.ctx, options: a.options, ready: make(chan struct{})}
	element := q.waiters.PushBack(w)
	a.startedAt = c.clock.now()
	outage := time.NewTimer(c.outage)
	defer outage.Stop()
	var err error
	for err == nil {
		if known := c.knownError(q, 0); known != nil {
			a.lastErr = known
		}
		c.mu.Unlock()
		a.reportContended()
		select {
		case <-w.ready:
			if w.head == nil {
				return w, nil
			}
			a.head = w.head
			c.mu.Lock()
			defer c.mu.Unlock()
			if known := c.knownError(q, a.startedAt); known != nil {
				a.lastErr = known // if the wait ends before the answer to this caller's own request
			}
			return nil, nil
		case <-outage.C:
			if err = a.outageError(q); err == nil {
				outage.Reset(c.outage)
			}
		case <-a.ctx.Done():
			err = a.ctx.Err()
		case <-c.closing:
			err = ErrClosed
		}
		c.mu.Lock()
	}
	defer c.mu.Unlock()
	select {
	case <-w.ready: // it came at the same moment
		switch {
		case w.passed != nil:
			w.passed.first.lockReturned.Store(false)
			c.activeCalls.Go(func() { _ = w.passed.first.lock.Release() })
		case w.head != nil:
			c.admitNext(w.head)
		}
	default:
		q.waiters.Remove(element)
	}
	if known := c.knownError(q, a.startedAt); known != nil {
		a.lastErr = known
	}
	return nil, err
}

// outageError returns the error of a waiter if the store has not answered about the name for
// Config.MaxOutage, and nil while the waiter should wait on.
func (a *acquireOp) outageError(q *nameQueue) error {
	c := a.c
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.knownError(q, 0)
	if _, held := known.(*HeldError); held || q.failingSince == 0 || c.clock.now()-q.failingSince < c.outage {
		return nil
	}
	if later := (*driver.RetryError)(nil); errors.As(known, &later) {
		if _, bounded := a.ctx.Deadline(); bounded {
			return nil
		}
	}
	if known == nil {
		known = errNotAnswered
	}
	return known
}

// errNotAnswered is the error while nothing is known of a name.
var errNotAnswered = fmt.Errorf("%w: it has not answered yet", ErrUnavailable)

// admitNext removes a head from its queue, and makes the first waiter a head in its place. The
// caller holds c.mu.
func (c *Client) admitNext(h *queueHead) {
	q := h.queue
	if h.beside {
		return
	}
	if l := h.lease; l != nil && l.token != l.firstToken {
		q.yieldUntil = c.clock.now() + turnYield
	}
	h.lease, h.grants, q.lastAnswer = nil, nil, nil
	delete(q.owners, h.owner)
	if w := q.firstWaiter(); w != nil {
		q.waiters.Remove(q.waiters.Front())
		w.head = h
		close(w.ready)
		return
	}
	if q.heads--; q.heads == 0 {
		c.removeQueue(q)
	}
}

// registerLease records a granted lease in its head, or among those that are in no queue. Waiting reentrant
// callers then join it. The caller holds c.mu.
func (c *Client) registerLease(l *lease) {
	if l.head == nil || l.head.beside {
		c.unqueued[l] = struct{}{}
		return
	}
	q := l.head.queue
	l.head.lease, q.lastAnswer, q.failingSince = l, nil, 0
	l.head.grants = nil
	if q.limit == 0 || q.firstWaiter() != nil || q.isHeld() {
		q.lastGranted = l
	}
	if !l.options.Reentrant || q.waiters == nil {
		return
	}
	var next *list.Element
	for e := q.waiters.Front(); e != nil; e = next {
		next = e.Next()
		if w := e.Value.(*waiter); w.options.Reentrant {
			q.waiters.Remove(e)
			w.join = l
			close(w.ready)
		}
	}
}
