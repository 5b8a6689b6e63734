package holdfast

import (
	"maps"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// During a local turn, a lease that is released goes to the next waiter of the same Client, under the
// next token, without a request. A turn begins with the grant of the store and lasts
// Config.LocalTurn. After it the lock is released to the store, where all Clients compete.

// defaultLocalTurn is Config.LocalTurn if it is 0. It is long enough to make the requests to the
// store rare, and too short to be noticed by the clients that wait.
const defaultLocalTurn = 10 * time.Millisecond

// turnYield is how long the next head leaves a lock that is free to other Clients, after a turn in
// which it was passed on, if the store is not Fair. It would otherwise try before those have been
// notified.
const turnYield = 2 * time.Millisecond

// minTokens is the least number of tokens that is requested for a turn, whatever the limit. More
// heads request fewer each, so that the tokens of all do not run ahead of the clock of the store.
const minTokens = 16

// yield waits until turnYield after the last turn is over.
func (a *acquireOp) yield(w *retryWaiter) error {
	c := a.c
	if a.startedAt == 0 || c.guarantees.Fair { // It has found no queue, or joins that of the store.
		return nil
	}
	c.mu.Lock()
	left := a.head.queue.yieldUntil - c.clock.now()
	c.mu.Unlock()
	if left <= 0 {
		return nil
	}
	return w.sleepFor(left)
}

// allowsLocalTurn reports whether a lease may be passed on to a call with these options. The other
// options bind a hold to its acquisition; passOn tests them for the lease.
func (o *Options) allowsLocalTurn() bool {
	return o.MinHold == 0 && o.MaxHold == 0 && !o.NoRenew && !o.Reentrant && !o.Detached
}

// requestedTokens returns how many tokens the next attempt requests. It is 0, for one token, unless
// other goroutines wait, since a grant of several costs the store more.
func (a *acquireOp) requestedTokens() int {
	c := a.c
	if c.localTurn <= 0 || !c.guarantees.Fencing || !a.options.allowsLocalTurn() {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q := a.head.queue
	first := q.firstWaiter()
	if first == nil || !first.options.suit(a.options.TTL, a.options.Metadata) {
		return 0
	}
	return max(driver.MaxTokens/q.heads, minTokens)
}

// firstWaiter returns the first waiter, or nil. The caller holds Client.mu.
func (q *nameQueue) firstWaiter() *waiter {
	if q.waiters == nil || q.waiters.Len() == 0 {
		return nil
	}
	return q.waiters.Front().Value.(*waiter)
}

// suit reports whether a call with these options can get a lease with this TTL and metadata.
func (o *Options) suit(ttl time.Duration, metadata map[string]string) bool {
	return o.allowsLocalTurn() && o.TTL == ttl && maps.Equal(o.Metadata, metadata)
}

// storeToken returns the token under which the store has the hold with the given token: the first of
// its grant, if the hold is one of this Client that was passed on.
func (c *Client) storeToken(full string, token int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.leaseWithToken(full, token); l != nil && l.token == token {
		return l.firstToken
	}
	return token
}

// passOn gives a lease that its holder has released to the first waiter, and reports whether it
// has. It does not after the turn, nor if the renewal of the lease is due, in flight, or has
// failed: the next holder would have less time than one whose lease has not been renewed yet. Nor
// does it if the lease was extended beyond its TTL, which would outlast the next holder.
func (l *lease) passOn() bool {
	c := l.c
	now := c.clock.now()
	if l.minHold > 0 || l.maxHold > 0 || l.reentrant || l.detached || now >= l.turnEnd || c.guarantees.Fencing && l.token >= l.lastToken {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h := l.head
	if now >= l.dueAt || h == nil || h.lease != l || l.inFlight.Load() > 0 || l.renewalFailed ||
		!l.autoRenew || l.mustRelease || l.keepUntil.Load() != 0 || time.Duration(l.latestExpiry.Load()) > now+l.ttl {
		return false
	}
	w := h.queue.firstWaiter()
	if w == nil || !w.options.suit(l.ttl, l.metadata) {
		return false
	}
	next := c.newLease(w.ctx, l.fullName, l.owner, &w.options)
	next.head = h
	next.token, next.firstToken, next.lastToken = l.token, l.firstToken, l.lastToken
	if c.guarantees.Fencing {
		next.token++
	}
	next.maybeGranted = true
	next.grantedAt, next.turnEnd, next.dueAt = now, l.turnEnd, l.dueAt
	next.deadline.Store(l.deadline.Load())
	next.promisedTTL = l.promisedTTL
	next.latestExpiry.Store(l.latestExpiry.Load())
	h.queue.waiters.Remove(h.queue.waiters.Front())
	c.registerLease(next)
	c.reschedule(next)
	w.passed = next
	close(w.ready)
	return true
}

// giveBack ends a lease that was passed on to a caller that no longer wants it. The caller has
// acquired nothing, so that nothing is logged and no hook is called.
func (l *lease) giveBack() {
	l.unreported.Store(true)
	l.first.lock.discard()
}
