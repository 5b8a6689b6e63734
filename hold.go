package holdfast

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A hold is what a Client knows of a lock that it has, or tries to get. One hold
// can have several Locks, its handles, if it is reentrant.
type hold struct {
	c         *Client
	full      string
	owner     string // the secret
	token     int64
	ttl       time.Duration
	minHold   time.Duration
	maxHold   time.Duration
	metadata  map[string]string
	renews    bool
	reentrant bool
	detached  bool
	adopted   bool   // it was acquired by another Client, and has no slot
	holder    string // who that was, if it is adopted
	open      bool   // the store may have this owner's hold, though it did not say so

	began    time.Duration // when the grant was received
	limit    time.Duration // when MaxHold is over, 0 for never
	deadline atomic.Int64  // until when it may be relied on, a reading of the clock

	undone atomic.Bool // nobody has got it after all, so that MinHold does not count

	// end is nil as long as the lock is held, then says why it is not. It is
	// set once, under Client.mu.
	end atomic.Pointer[error]

	// The rest is guarded by Client.mu.
	locks   *Lock         // the handles
	refs    int           // handles not yet released
	due     time.Duration // when the schedule looks at it next
	place   int           // in the schedule
	flights int           // requests under way that may prolong it
	landed  chan struct{} // made by whoever waits for the flights, closed by the last
	doubted bool          // the last renewal failed
	shared  bool          // a ticket is out: the hold may outlast what is known of it here

	releasing sync.Once
	released  error
}

// A grant is a hold with its first handle, in one piece of memory.
type grant struct {
	hold hold
	lock Lock
}

func (a *acquisition) newGrant() *grant {
	g := &grant{hold: hold{
		c:         a.c,
		full:      a.full,
		owner:     a.c.owners.next(),
		ttl:       a.o.TTL,
		minHold:   a.o.MinHold,
		maxHold:   a.o.MaxHold,
		metadata:  a.o.Metadata,
		renews:    !a.o.NoRenew,
		reentrant: a.o.Reentrant,
		detached:  a.o.Detached,
		place:     unscheduled,
		refs:      1,
	}}
	g.lock.hold = &g.hold
	g.hold.locks = &g.lock
	return g
}

// start makes a granted hold live, unless the grant came too late: so late that
// it cannot be relied on, or after Close had begun.
func (h *hold) start(sent time.Duration, token int64) error {
	c := h.c
	h.token = token
	h.began = sent
	if !c.inline { // the answer may have taken its time
		h.began = c.clock.now()
	}
	if h.maxHold > 0 {
		h.limit = h.began + h.maxHold
	}
	h.prolong(sent, h.ttl)
	if h.began >= time.Duration(h.deadline.Load()) {
		return fmt.Errorf("%w: the answer came after the end of the TTL of %v", ErrUnavailable, h.ttl)
	}
	h.due = h.nextDue(sent)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.install(h)
	c.planned(h)
	return nil
}

// prolong moves the deadline for a request that was sent then.
func (h *hold) prolong(sent, ttl time.Duration) {
	deadline := sent + validity(ttl)
	if h.limit > 0 {
		deadline = min(deadline, h.limit)
	}
	for {
		old := h.deadline.Load()
		if int64(deadline) <= old || h.deadline.CompareAndSwap(old, int64(deadline)) {
			return
		}
	}
}

// nextDue is when the schedule must look at a hold that was prolonged at sent.
func (h *hold) nextDue(sent time.Duration) time.Duration {
	deadline := time.Duration(h.deadline.Load())
	if !h.renews || deadline == h.limit {
		return deadline
	}
	return min(sent+h.ttl/3, deadline)
}

// leaveRenewal ends the automatic renewal.
func (h *hold) leaveRenewal() {
	c := h.c
	c.mu.Lock()
	defer c.mu.Unlock()
	h.renews = false
	if h.end.Load() == nil {
		h.due = time.Duration(h.deadline.Load())
		c.planned(h)
	}
}

// err returns why the lock is not held, nil while it is. It reads the clock, and
// so cannot be behind the times.
func (h *hold) err() error {
	if end := h.end.Load(); end != nil {
		return *end
	}
	now := h.c.clock.now()
	if now < time.Duration(h.deadline.Load()) {
		return nil
	}
	reason := ErrExpired
	if h.limit > 0 && now >= h.limit {
		reason = ErrMaxHold
	}
	h.lose(reason)
	return *h.end.Load()
}

// lose ends a hold that its holder has not released.
func (h *hold) lose(reason error) {
	c := h.c
	lost := error(&LostError{Name: c.strip(h.full), Token: h.token, Reason: reason})
	if !h.over(&lost) {
		return
	}
	h.leave()
	held := c.clock.now() - h.began
	c.warn(context.Background(), "lock lost", c.strip(h.full), lost)
	if c.hooks.Lost != nil {
		c.hooks.Lost(c.strip(h.full), held, lost)
	}
}

// over ends a hold, and the contexts of its handles. Only the first call does
// anything, and reports true.
func (h *hold) over(end *error) bool {
	c := h.c
	c.mu.Lock()
	if h.end.Load() != nil {
		c.mu.Unlock()
		return false
	}
	h.end.Store(end)
	c.schedule.remove(h)
	locks := h.locks
	c.mu.Unlock()
	for l := locks; l != nil; l = l.next {
		l.finish(*end)
	}
	return true
}

// leave gives up the place that the hold has in its Client.
func (h *hold) leave() {
	c := h.c
	if !h.adopted {
		c.leave(h.full)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.adopted, h)
}

// record describes the hold to others.
func (h *hold) record() Record {
	c := h.c
	now := c.clock.now()
	left := time.Duration(h.deadline.Load()) - now
	wall := time.Now().Round(0)
	return Record{
		Name:      c.strip(h.full),
		Holder:    c.holder,
		Token:     h.token,
		Since:     wall.Add(h.began - now),
		Until:     wall.Add(left),
		Remaining: max(left, 0),
		Metadata:  h.metadata,
	}
}
