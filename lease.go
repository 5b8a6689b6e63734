package holdfast

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A lease is a Client's hold of a lock, or its attempt to get one. A reentrant lease can have
// several handles, one for each acquisition. Client.Locks makes further Locks of a handle.
type lease struct {
	c              *Client
	fullName       string
	owner          string // the secret
	token          int64
	firstToken     int64 // of the grant
	lastToken      int64
	ttl            time.Duration
	minHold        time.Duration
	maxHold        time.Duration
	metadata       map[string]string
	autoRenew      bool
	reentrant      bool
	detached       bool
	passable       bool   // its options allow that it is passed on
	adopted        bool   // acquired by another Client, and in no queue of this one
	originalHolder string // that other Client's public name, if adopted
	maybeGranted   bool   // the store may have granted it

	grantedAt    time.Duration // when the grant was received, or the lease was passed on
	turnEnd      time.Duration // when the local turn is over
	maxHoldEnd   time.Duration // when MaxHold is over, 0 for never
	deadline     atomic.Int64  // until when the holder may rely on it, a reading of the clock
	latestExpiry atomic.Int64  // until when the store may keep it at most; never before deadline

	unreported atomic.Bool // its end is not reported to the hooks: see giveBack

	discarded atomic.Bool // no caller has used it, so that MinHold does not count

	keepUntil atomic.Int64 // until when ReleaseKeep keeps the name, a reading of the clock; 0 if not

	// endReason is nil as long as the lock is held, and then the reason of the end. It is set
	// once: under Client.mu, or by acquireAsHead before the lease is known to others.
	endReason atomic.Pointer[error]

	// Client.mu guards the fields from here to selfWaitWarned.
	handles        *handle       // the handles that are not released, and the last one that was
	openHandles    int           // handles not yet released
	dueAt          time.Duration // when the scheduler checks it next
	heapIndex      int           // in the schedule, or notScheduled
	awaitingWork   bool          // it has ended; its release waits for work under it
	inFlight       atomic.Int32  // requests in flight that may extend it; after the end it only falls
	idle           chan struct{} // closed when inFlight falls to 0; nil if nothing waits for it
	renewalFailed  bool          // the last renewal failed
	mustRelease    bool          // it is not passed on: it may be lost, or ReleaseAll releases it
	ticketIssued   bool          // a ticket exists: the lease may outlast what this Client knows
	selfWaitWarned bool          // a warning was logged that this Client waits for it for long

	releaseOnce sync.Once
	releaseErr  error
}

// A leaseAndHandle is a lease with its first handle and Lock, in one allocation.
type leaseAndHandle struct {
	lease  lease
	handle handle
	lock   Lock
}

// newLease returns a lease that is not yet granted, with its first handle.
func (a *acquireOp) newLease(owner string) *leaseAndHandle {
	pair := &leaseAndHandle{lease: lease{
		c:           a.c,
		fullName:    a.fullName,
		owner:       owner,
		ttl:         a.options.TTL,
		minHold:     a.options.MinHold,
		maxHold:     a.options.MaxHold,
		metadata:    a.options.Metadata,
		autoRenew:   !a.options.NoRenew,
		reentrant:   a.options.Reentrant,
		detached:    a.options.Detached,
		passable:    a.options.allowsLocalTurn(),
		heapIndex:   notScheduled,
		openHandles: 1,
	}}
	pair.handle.lease = &pair.lease
	pair.handle.valuesCtx = a.ctx
	pair.lease.handles = &pair.handle
	return pair
}

// activate makes a granted lease the one that the Client holds. It fails if the grant came too
// late: after the lease's deadline, or after Close had begun.
func (l *lease) activate(sent time.Duration, res *driver.AcquireResult) error {
	c := l.c
	l.token, l.firstToken, l.lastToken = res.Token, res.Token, res.Token+int64(max(res.Tokens, 1))-1
	l.grantedAt = sent
	if !c.inProcess { // the answer may have taken its time
		l.grantedAt = c.clock.now()
	}
	l.turnEnd = l.grantedAt + c.localTurn
	if l.maxHold > 0 {
		l.maxHoldEnd = l.grantedAt + l.maxHold
	}
	raiseReading(&l.latestExpiry, l.grantedAt+l.ttl)
	l.extendDeadline(sent, l.ttl)
	if l.grantedAt >= time.Duration(l.deadline.Load()) {
		return fmt.Errorf("%w: the answer came after the end of the TTL of %v", ErrUnavailable, l.ttl)
	}
	l.dueAt = l.nextDue(sent)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.registerLease(l)
	c.reschedule(l)
	return nil
}

// extendDeadline moves the deadline for a request that was sent at sent.
func (l *lease) extendDeadline(sent, ttl time.Duration) {
	deadline := sent + validity(ttl)
	if l.maxHoldEnd > 0 {
		deadline = min(deadline, l.maxHoldEnd)
	}
	raiseReading(&l.deadline, deadline)
}

// raiseLatestExpiry records that the store may have granted or extended the lease by ttl as late
// as now.
func (l *lease) raiseLatestExpiry(ttl time.Duration) {
	raiseReading(&l.latestExpiry, l.c.clock.now()+ttl)
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

// nextDue returns when the scheduler must check a lease that was extended by a request sent at
// sent.
func (l *lease) nextDue(sent time.Duration) time.Duration {
	deadline := time.Duration(l.deadline.Load())
	if !l.autoRenew || deadline == l.maxHoldEnd {
		return deadline
	}
	return min(sent+l.ttl/3, deadline)
}

// stopAutoRenew ends the automatic renewal.
func (l *lease) stopAutoRenew() {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	l.autoRenew = false
	if l.endReason.Load() == nil {
		l.dueAt = time.Duration(l.deadline.Load())
		c.reschedule(l)
	}
}

// checkHeld returns nil while the lock is held, and then the reason of its end. It reads the
// clock, and so does not depend on the scheduler; it marks the lease as lost if the deadline has
// passed.
func (l *lease) checkHeld() error {
	if end := l.endReason.Load(); end != nil {
		return *end
	}
	now := l.c.clock.now()
	if now < time.Duration(l.deadline.Load()) {
		return nil
	}
	reason := ErrExpired
	if l.maxHoldEnd > 0 && now >= l.maxHoldEnd {
		reason = ErrMaxHold
	}
	l.markLost(reason)
	return *l.endReason.Load()
}

// markLost ends a lease that its holder has not released.
func (l *lease) markLost(reason error) {
	c := l.c
	lost := error(&LostError{Name: c.stripPrefix(l.fullName), Token: l.token, Reason: reason})
	if !l.endLease(&lost) {
		return
	}
	l.unregister()
	held := c.clock.now() - l.grantedAt
	c.logWarning(context.Background(), "lock lost", c.stripPrefix(l.fullName), lost)
	if c.hooks.Lost != nil {
		c.hooks.Lost(c.stripPrefix(l.fullName), held, lost)
	}
}

// endLease ends the lease and the contexts of its handles. Only the first call has an effect and
// returns true.
func (l *lease) endLease(end *error) bool {
	c := l.c
	c.mu.Lock()
	if !l.endLocked(end) {
		c.mu.Unlock()
		return false
	}
	handles := l.appendHandles(make([]*handle, 0, 1))
	c.mu.Unlock()
	for _, h := range handles {
		h.endContext(*end)
	}
	return true
}

// endLocked ends the lease, but not the contexts of its handles. The caller holds Client.mu.
func (l *lease) endLocked(end *error) bool {
	if l.endReason.Load() != nil {
		return false
	}
	l.endReason.Store(end)
	l.c.schedule.remove(l)
	return true
}

// appendHandles appends the handles in l.handles. The caller holds Client.mu.
func (l *lease) appendHandles(to []*handle) []*handle {
	for h := l.handles; h != nil; h = h.next {
		to = append(to, h)
	}
	return to
}

// registeredWork returns a channel for each piece of work that Do runs under the lease. It is
// closed when the work has returned.
func (l *lease) registeredWork() []<-chan struct{} {
	l.c.mu.Lock()
	handles := l.appendHandles(nil)
	l.c.mu.Unlock()
	var work []<-chan struct{}
	for _, h := range handles {
		if done := h.registeredWork(); done != nil {
			work = append(work, done)
		}
	}
	return work
}

// setAwaitingWork records whether the release of the lease, which has ended, waits for work.
func (l *lease) setAwaitingWork(awaiting bool) {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	l.awaitingWork = awaiting
	if q := c.queues[l.fullName]; q != nil && q.lease == l {
		q.signalChange()
	}
}

// waitForWork waits until work has returned, but not beyond the deadline of the lease. The
// renewal of the lease has ended.
func (l *lease) waitForWork(work []<-chan struct{}) {
	c := l.c
	for _, done := range work {
		for open := true; open; {
			left := time.Duration(l.deadline.Load()) - c.clock.now()
			if left <= 0 {
				if c.log != nil {
					c.log.Warn("released, though work under the lock has not returned",
						"name", c.stripPrefix(l.fullName), "token", l.token)
				}
				return
			}
			timer := time.NewTimer(min(left, suspendCheck))
			select {
			case <-done:
				open = false
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

// unregister is the reverse of Client.registerLease.
func (l *lease) unregister() {
	c := l.c
	if !l.adopted {
		c.dequeue(l.fullName)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.adopted, l)
}

// currentRecord describes the lease to other callers.
func (l *lease) currentRecord() Record {
	c := l.c
	now := c.clock.now()
	left := time.Duration(l.deadline.Load()) - now
	wall := time.Now().Round(0)
	return Record{
		Name:      c.stripPrefix(l.fullName),
		Holder:    c.holder,
		Token:     l.token,
		Since:     wall.Add(l.grantedAt - now),
		Until:     wall.Add(left),
		Remaining: max(left, 0),
		Metadata:  l.metadata,
	}
}

// joinable reports whether an acquisition may share the lease. The caller holds Client.mu.
func (l *lease) joinable() bool {
	return l.reentrant && l.openHandles > 0 && l.endReason.Load() == nil
}

// removeHandle removes a handle from its lease. It reports whether the handle was the last, which
// stays in the list. If end is not nil, the last handle ends the lease, for that reason.
func (h *handle) removeHandle(end *error) bool {
	l := h.lease
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.openHandles--
	if l.openHandles == 0 {
		if end != nil {
			l.endLocked(end)
		}
		return true
	}
	if h.next != nil {
		h.next.prev = h.prev
	}
	if h.prev != nil {
		h.prev.next = h.next
	} else {
		l.handles = h.next
	}
	h.next, h.prev = nil, nil
	return false
}

// joinLease adds a handle to a lease, and extends it. It keeps trying while the store fails, as
// an acquisition does, for as long as the lease itself lasts.
func (a *acquireOp) joinLease(l *lease) (*Lock, error) {
	c := l.c
	h := &handle{lease: l, joined: true, lockContext: lockContext{valuesCtx: a.ctx}}
	c.mu.Lock()
	if !l.joinable() {
		c.mu.Unlock()
		return nil, ErrReleased
	}
	h.next, l.handles.prev, l.handles = l.handles, h, h
	l.openHandles++
	c.mu.Unlock()
	w := retryWaiter{c: c, ctx: a.ctx, fullName: l.fullName}
	budget := outageBudget{c: c, name: a.name, singleAttempt: a.singleAttempt, hasAnswered: true}
	for {
		sent := c.clock.now()
		if a.startedAt == 0 {
			a.startedAt = sent
		}
		err := c.extendLeases(a.ctx, l.ttl, l)
		if err == nil {
			return h.newLock(), nil
		}
		if l.endReason.Load() == nil {
			if a.ctx.Err() == nil {
				a.lastErr = err
			}
			var after time.Duration
			if after, err = budget.retryDelay(a.ctx, sent, err); err == nil {
				err = w.waitOutage(after)
			}
		}
		if err != nil {
			_ = (&Lock{h}).Release() // the caller gets err
			return nil, err
		}
	}
}

// An ownerSource makes owner secrets: 128 random bits each. It reads them from the system in
// larger pieces, since a system call for each would be among the most expensive parts of taking a
// lock in memory.
type ownerSource struct {
	mu     sync.Mutex
	random *bufio.Reader
	secret [16]byte // scratch
}

func newOwnerSource() *ownerSource {
	return &ownerSource{random: bufio.NewReaderSize(rand.Reader, 1024)}
}

func (s *ownerSource) nextOwner() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := io.ReadFull(s.random, s.secret[:]); err != nil {
		panic(err) // crypto/rand never fails
	}
	return hex.EncodeToString(s.secret[:])
}
