package holdfast

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A lease is a Client's hold of a lock, or its attempt to get one. A reentrant lease can have
// several handles, one for each acquisition. Client.Locks makes further Locks of a handle.
type lease struct {
	c            *Client
	fullName     string
	head         *queueHead // its head in the queue; nil for an adopted lease
	owner        string     // the secret
	token        int64
	firstToken   int64   // of the grant
	tokens       int32   // of the grant
	maybeGranted bool    // the store may have a hold or a place of the owner, or keep others out for it
	options      Options // with all defaults
	adoptedFrom  *string // the public name of the Client that acquired it; nil if this one has
	releaseOnce  sync.Once
	releaseErr   error

	grantedAt    time.Duration // when the grant was received, or the lease was passed on
	turnEnd      time.Duration // when the local turn is over
	deadline     atomic.Int64  // until when the holder may rely on it, a reading of the clock
	latestExpiry atomic.Int64  // until when the store may keep it at most; never before deadline
	keepUntil    atomic.Int64  // until when ReleaseKeep keeps the name, a reading of the clock; 0 if not

	// Client.mu guards the fields from here to mustRelease. Of endReason, it guards the
	// changes.
	inFlight      int32                 // requests in flight that may extend it; after the end it only falls
	endReason     atomic.Pointer[error] // nil as long as the lock is held; it is set once
	handles       []*handle             // the handles that are not released, and the last one that was
	openHandles   int32                 // handles not yet released
	heapIndex     int32                 // in the schedule, or notScheduled
	dueAt         time.Duration         // when the scheduler checks it next
	idle          chan struct{}         // closed when inFlight falls to 0; nil if nothing waits for it
	confirmedAt   time.Duration         // when the last request that confirmed the place was sent
	promisedTTL   time.Duration         // for which the store has promised it, of which deadline is the end
	isPlace       bool                  // it waits in the queue of the store
	awaitingWork  bool                  // it has ended; its release waits for work under it
	renewalFailed bool                  // the last renewal failed
	mustRelease   bool                  // it is not passed on: it may be lost, or ReleaseAll releases it

	first handle     // of the acquisition that made the lease; not a pointer, to save an allocation
	one   [1]*handle // the memory of handles, as long as there is one
}

// A handle is one acquisition of a lease, and the state of its Lock.
type handle struct {
	lease        *lease
	lock         Lock        // that the caller gets
	lockReturned atomic.Bool // the caller gets a Lock: the call that made the handle has succeeded
	lockContext

	releaseOnce sync.Once
	releaseErr  error // result of Release
}

// newLease returns a lease that is not yet granted, with its first handle. The contexts of the
// handle have the values of ctx.
func (c *Client) newLease(ctx context.Context, full, owner string, o *Options) *lease {
	l := &lease{
		c:           c,
		fullName:    full,
		owner:       owner,
		options:     *o,
		heapIndex:   notScheduled,
		openHandles: 1,
	}
	h := &l.first
	h.lease, h.lock.handle, h.valuesCtx = l, h, ctx
	l.one[0] = h
	l.handles = l.one[:]
	return l
}

// newLock returns a Lock of the handle for a caller.
func (h *handle) newLock() *Lock {
	h.lockReturned.Store(true)
	return &h.lock
}

// activate makes a granted lease the one that the Client holds, for ttl from the request that was
// sent at sent. It fails if the grant came too late: after the lease's deadline, or after Close had
// begun.
func (l *lease) activate(sent, ttl time.Duration, res *driver.AcquireResult) error {
	c := l.c
	l.token, l.firstToken, l.tokens = res.Token, res.Token, int32(max(res.Tokens, 1))
	l.grantedAt = sent
	if !c.inProcess || l.isPlace { // The answer may have been slow, or a notice may have come late.
		l.grantedAt = c.clock.now()
	}
	l.turnEnd = l.grantedAt + c.localTurn
	raiseReading(&l.latestExpiry, l.grantedAt+l.options.TTL)
	c.mu.Lock()
	defer c.mu.Unlock()
	l.extend(sent, ttl)
	if l.grantedAt >= time.Duration(l.deadline.Load()) {
		return fmt.Errorf("%w: the answer came after the end of the TTL of %v", ErrUnavailable, ttl)
	}
	l.isPlace = false
	if c.closed {
		return ErrClosed
	}
	l.first.lockReturned.Store(true)
	c.registerLease(l)
	c.reschedule(l)
	return nil
}

// extend moves the deadline, and the time of the next renewal, for a request that was sent at sent.
// The store counts the TTL from a later moment, so that the deadline comes before the end of the
// TTL in the store.
func (l *lease) extend(sent, ttl time.Duration) {
	deadline := sent + driver.Validity(ttl)
	if end := l.maxHoldEnd(); end > 0 {
		deadline = min(deadline, end)
	}
	if deadline > time.Duration(l.deadline.Load()) {
		l.promisedTTL = ttl
	}
	raiseReading(&l.deadline, deadline)
	l.dueAt = time.Duration(l.deadline.Load())
	if !l.options.NoRenew && l.dueAt != l.maxHoldEnd() {
		l.dueAt = min(l.dueAt, sent+min(ttl, l.options.TTL)/3)
	}
}

// lastToken returns the last token of the grant.
func (l *lease) lastToken() int64 { return l.firstToken + int64(l.tokens) - 1 }

// maxHoldEnd returns when MaxHold is over, 0 for never.
func (l *lease) maxHoldEnd() time.Duration {
	if l.options.MaxHold == 0 {
		return 0
	}
	return l.grantedAt + l.options.MaxHold
}

// raiseReading makes a reading of the clock at least as great as to.
func raiseReading(reading *atomic.Int64, to time.Duration) {
	for {
		old := reading.Load()
		if int64(to) <= old || reading.CompareAndSwap(old, int64(to)) {
			return
		}
	}
}

// publicHolder returns the name under which the lease is held, "" if the store does not know it.
func (l *lease) publicHolder() string {
	if l.adoptedFrom != nil {
		return *l.adoptedFrom
	}
	return l.c.holder
}

// joinable reports whether an acquisition may share the lease. The caller holds Client.mu.
func (l *lease) joinable() bool {
	return l.options.Reentrant && l.openHandles > 0 && l.endReason.Load() == nil
}

// currentRecord describes the lease to other callers.
func (l *lease) currentRecord() Record {
	c := l.c
	now := c.clock.now()
	left := time.Duration(l.deadline.Load()) - now
	wall := time.Now().Round(0)
	return Record{
		Name:      c.stripPrefix(l.fullName),
		Holder:    l.publicHolder(),
		Token:     l.token,
		Since:     wall.Add(l.grantedAt - now),
		Until:     wall.Add(left),
		Remaining: max(left, 0),
		Limit:     l.options.limit(),
		Metadata:  l.options.Metadata,
	}
}
