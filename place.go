package holdfast

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A place is a lease in the queue of a name in a store that is Fair, before it is granted. The head
// of the Client's own queue has it. It is renewed by the scheduler as holds are, but in requests of
// its own. A store that is not Fair keeps no places: it sends notices to the head, which then tries
// again.

const (
	// maxPlaceTTL is the greatest TTL of a place. Waiters that die together delay the others by
	// that much in all. A hold by a notice has the rest of it until its first renewal.
	maxPlaceTTL = 5 * time.Second

	// noticeTime is for how long a store that is not Fair sends notices after a request. It is
	// longer than the time from one request of a waiter to the next.
	noticeTime = 10 * time.Second

	// noticedPause is the greatest pause of a waiter that gets notices from such a store.
	noticedPause = 2 * time.Second
)

// placeTTL returns the TTL of the place of a lease.
func placeTTL(ttl time.Duration) time.Duration { return min(ttl, maxPlaceTTL) }

// queueTime returns AcquireRequest.Queue for the attempts of the operation. An operation with a
// number of attempts has no place: each of its attempts takes the name or not.
func (a *acquireOp) queueTime() time.Duration {
	c := a.c
	switch {
	case a.singleAttempt || a.options.MaxAttempts > 0:
		return 0
	case c.guarantees.Fair:
		return placeTTL(a.options.TTL)
	}
	return noticeTime
}

// confirmPlace records that the store has confirmed the place of l by its answer to a request that
// was sent at sent. The store keeps the entry of the owner for the TTL of a place from a later
// moment, and the grant, whenever it comes, does not change that.
func (l *lease) confirmPlace(sent time.Duration) {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	l.waiting = true
	l.maybeGranted = true
	l.schedulePlace(sent)
}

// schedulePlace does the work of confirmPlace for a place that the lease has. The caller holds
// c.mu.
func (l *lease) schedulePlace(sent time.Duration) {
	c := l.c
	ttl := placeTTL(l.ttl)
	l.confirmedAt = max(l.confirmedAt, sent)
	raiseReading(&l.latestExpiry, c.clock.now()+ttl)
	l.dueAt = l.confirmedAt + ttl/3
	c.reschedule(l)
}

// endPlace takes a place from the schedule, when it becomes a hold or is given up.
func (l *lease) endPlace() {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	l.waiting = false
	c.schedule.remove(l)
}

// applyPlaceOutcome records the outcome of the renewal of a place, which was sent at sent. By now
// the lease may be a hold, or given up. The caller holds c.mu.
func (l *lease) applyPlaceOutcome(outcome driver.RenewOutcome, sent time.Duration) {
	c := l.c
	if !l.waiting {
		if outcome == driver.Renewed && c.holds(l) {
			l.extend(sent, placeTTL(l.ttl))
			c.reschedule(l)
		}
		return
	}
	if outcome == driver.RenewQueued {
		l.schedulePlace(sent)
		return
	}
	c.queues[l.fullName].signalHead(true) // It was admitted, or is lost or in doubt: a claim shows it.
}

// holds reports whether l is the lease that the Client holds. The caller holds c.mu.
func (c *Client) holds(l *lease) bool {
	q := c.queues[l.fullName]
	return q != nil && q.lease == l && l.endReason.Load() == nil
}

// takeGrant returns the grant that a notice has reported for the place of l, and when the request
// was sent that has confirmed the place last. Grants of other owners are given back. A lease that
// is not renewed soon by this Client ignores the notice, and gets its full TTL by a claim.
func (l *lease) takeGrant() (res driver.AcquireResult, confirmedAt time.Duration) {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queues[l.fullName]
	for _, n := range q.grants {
		switch {
		case n.Owner != l.owner:
			c.giveBackGrant(n)
		case l.autoRenew && !l.detached:
			res = driver.AcquireResult{Granted: true, Token: n.Token, Tokens: n.Tokens}
		}
	}
	q.grants = nil
	return res, l.confirmedAt
}

// replaceLease returns a lease with a new owner, in place of one whose owner has neither a hold nor
// a place. If the answer to a request of the old owner was lost, that request may still be on its
// way, and the old owner is released.
func (a *acquireOp) replaceLease(l *lease) *lease {
	c := a.c
	l.endPlace()
	if l.inDoubt {
		l.discarded.Store(true)
		c.activeCalls.Go(func() { l.releaseUntilExpired(false) })
	}
	return c.newLease(a.ctx, a.fullName, c.newOwner(), &a.options)
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
	for listener, name := range c.listeners {
		if n.Name == name || n.Name == "" {
			select {
			case listener <- struct{}{}:
			default:
			}
		}
	}
	q := c.queues[n.Name]
	switch {
	case n.Kind == driver.Granted && q == nil:
		c.giveBackGrant(n)
	case n.Kind == driver.Granted && q.lease != nil && q.lease.owner == n.Owner: // known
	case n.Kind == driver.Granted:
		q.grants = append(q.grants, n)
		q.signalHead(true)
	case q != nil:
		q.signalHead(true)
	case n.Name == "":
		for _, q := range c.queues {
			q.signalHead(true)
		}
	}
}

// giveBackGrant releases the hold of an owner that no longer wants it. The caller holds c.mu.
func (c *Client) giveBackGrant(n driver.Notice) {
	if c.closed {
		return // It ends soon: nothing renews it.
	}
	l := c.newLease(context.Background(), n.Name, n.Owner, &Options{TTL: maxPlaceTTL})
	l.discarded.Store(true)
	raiseReading(&l.latestExpiry, c.clock.now()+maxPlaceTTL)
	c.activeCalls.Go(func() { l.releaseUntilExpired(false) })
}

// signalHead ends the pause of the head. If a notice is the cause, the next attempt counts as one
// of the head itself. The caller holds Client.mu.
func (q *nameQueue) signalHead(noticed bool) {
	q.noticed = q.noticed || noticed
	if q.wake == nil {
		return // The head reads noticed before it pauses.
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// renewPlaces renews places, for each of which a request in flight is counted, with one request.
// Their request has no holds, which may have a longer timeout.
func (c *Client) renewPlaces(places []*lease) {
	reqs := make([]driver.RenewRequest, len(places))
	timeout := c.requestTimeout
	for i, l := range places {
		ttl := placeTTL(l.ttl)
		reqs[i] = driver.RenewRequest{Name: l.fullName, Owner: l.owner, TTL: ttl}
		timeout = min(timeout, c.renewTimeout(ttl))
	}
	sent := c.clock.now()
	outcomes, _ := request(c, context.Background(), timeout, func(ctx context.Context) ([]driver.RenewOutcome, error) {
		return c.store.Renew(ctx, reqs)
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, l := range places {
		outcome := driver.RenewUnknown
		if i < len(outcomes) {
			outcome = outcomes[i]
		}
		l.applyPlaceOutcome(outcome, sent)
		l.endRequest()
	}
}
