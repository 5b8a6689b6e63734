package holdfast

import (
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A place is a lease that waits for its grant in the queue of a Fair store. Only the head of the
// Client's own queue has one. The scheduler renews places and holds alike, but by separate
// requests. A store that is not Fair keeps no places. It sends notices to the head, which then
// tries again.

const (
	// maxPlaceTTL is the greatest TTL of a place. It bounds the delay by waiters that die together.
	// A hold that was granted by a notice ends with the place unless it is renewed.
	maxPlaceTTL = 5 * time.Second

	// noticedPause is the greatest pause of a waiter that gets notices from a store that is not Fair,
	// unless the store answers with a longer one.
	noticedPause = 2 * time.Second

	// noticedQueue is how long such a store sends notices to the waiter after a request. It bounds
	// for how long a waiter that is stopped keeps others out behind shared and limited holds.
	noticedQueue = 2 * noticedPause
)

// placeTTL returns the TTL of the place of a lease.
func placeTTL(ttl time.Duration) time.Duration { return min(ttl, maxPlaceTTL) }

// queueDuration returns AcquireRequest.Queue for the attempts of the operation. An operation with a
// limited number of attempts has no place: each of its attempts takes the name or not.
func (a *acquireOp) queueDuration() time.Duration {
	c := a.c
	switch {
	case a.singleAttempt || a.options.MaxAttempts > 0:
		return 0
	case c.guarantees.Fair:
		return placeTTL(a.options.TTL)
	}
	return noticedQueue
}

// confirmPlace records that the answer to a request that was sent at sent has confirmed the place
// of l. The store counts the TTL of the place from a later moment. A grant does not move its end.
func (l *lease) confirmPlace(sent time.Duration) {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	l.isPlace, l.maybeGranted = true, true
	l.schedulePlace(sent)
}

// schedulePlace sets the next renewal of a place that was confirmed by a request that was sent at
// sent. The caller holds c.mu.
func (l *lease) schedulePlace(sent time.Duration) {
	c := l.c
	ttl := placeTTL(l.options.TTL)
	l.confirmedAt = max(l.confirmedAt, sent)
	raiseReading(&l.latestExpiry, c.clock.now()+ttl)
	l.dueAt = l.confirmedAt + ttl/3
	c.reschedule(l)
}

// endPlace takes a place that is given up from the schedule.
func (l *lease) endPlace() {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	l.isPlace = false
	c.schedule.remove(l)
}

// applyPlaceOutcome records the outcome of the renewal of a place that was sent at sent, and that
// it is no longer in flight. The lease may be a hold by now, or given up.
func (l *lease) applyPlaceOutcome(outcome driver.RenewOutcome, sent time.Duration) {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !l.isPlace && outcome == driver.Renewed && l.head != nil && l.head.lease == l && l.endReason.Load() == nil:
		l.extend(sent, placeTTL(l.options.TTL))
		c.reschedule(l)
	case !l.isPlace:
	case outcome == driver.RenewQueued:
		l.schedulePlace(sent)
	default:
		l.head.signal() // A claim shows whether it was admitted or lost.
	}
	l.endRequest()
}

// takeGrant returns the grant that a notice has reported for the place of l, and the time of the
// last request that has confirmed the place. A lease that this Client does not renew ignores its
// notice and gets its full TTL by a claim.
func (l *lease) takeGrant() (res driver.AcquireResult, confirmedAt time.Duration) {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range l.head.grants {
		if n.Owner == l.owner && !l.options.NoRenew && !l.options.Detached {
			res = driver.AcquireResult{Granted: true, Token: n.Token, Tokens: n.Tokens}
		}
	}
	l.head.grants = nil
	return res, l.confirmedAt
}

// replaceLease returns a lease with a new owner. It releases the owner of l, which has neither a hold
// nor a place: a lost request of it may still arrive.
func (a *acquireOp) replaceLease(l *lease) *lease {
	c := a.c
	l.endPlace()
	c.activeCalls.Go(func() { l.releaseUntilExpired(false) })
	return a.newLease()
}

// onNotice handles a notice of the store. It does not block.
func (c *Client) onNotice(n driver.Notice) {
	if n.Kind == driver.Lost {
		c.onStoreLoss(n.Name, n.Owner)
		return
	}
	if n.Owner != "" && !strings.HasPrefix(n.Owner, c.ownerPrefix) {
		return // It is for another Client of this store.
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.Name == "" {
		for _, q := range c.queues {
			for h := range q.allHeads() {
				h.signal()
			}
		}
		return
	}
	if n.Owner == "" {
		for h := range c.queues[n.Name].allHeads() {
			h.signal()
		}
		return
	}
	var h *queueHead // of the owner, or of an exclusive lock: it may have had the owner
	for q := c.queues[n.Name]; q != nil; q = q.next {
		if q.limit == 0 && h == nil {
			h = &q.first
		} else if own := q.owners[n.Owner]; own != nil {
			h = own
		}
	}
	if h == nil || h.lease != nil {
		return // Nothing waits for it: what the owner may have had was released, or is held.
	}
	if n.Kind == driver.Granted {
		h.grants = append(h.grants, n)
	}
	h.signal()
}

// signal ends the pause of the head. The caller holds Client.mu.
func (h *queueHead) signal() {
	h.noticed = true
	if h.wake == nil {
		return // The head reads noticed before it pauses.
	}
	select {
	case h.wake <- struct{}{}:
	default:
	}
}
