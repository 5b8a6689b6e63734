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
func (a *acquireOp) yield() error {
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
	return a.sleepFor(left)
}

// requestedTokens returns how many tokens the next attempt requests. It is 0, for one token, unless
// other goroutines wait, since a grant of several costs the store more.
func (a *acquireOp) requestedTokens() int {
	c := a.c
	if c.localTurn <= 0 || !c.guarantees.Fencing {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q := a.head.queue
	first := q.firstWaiter()
	if first == nil || !a.options.passableTo(&first.options) {
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
// failed: a lease whose renewal is due has less than 2/3 of its TTL left. Nor
// does it if the lease was extended beyond its TTL, which would outlast the next holder.
func (l *lease) passOn() bool {
	c := l.c
	now := c.clock.now()
	if now >= l.turnEnd || c.guarantees.Fencing && l.token >= l.lastToken() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h := l.head
	if now >= l.dueAt || h == nil || h.lease != l || l.inFlight > 0 || l.renewalFailed ||
		l.mustRelease || l.keepUntil.Load() != 0 || time.Duration(l.latestExpiry.Load()) > now+l.options.TTL {
		return false
	}
	w := h.queue.firstWaiter()
	if w == nil || !l.options.passableTo(&w.options) {
		return false
	}
	next := c.newLease(w.ctx, l.fullName, l.owner, &w.options)
	next.head = h
	next.token, next.firstToken, next.tokens = l.token, l.firstToken, l.tokens
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
	next.first.lockReturned.Store(true) // a loss before its caller has it has its end reported
	close(w.ready)
	return true
}
