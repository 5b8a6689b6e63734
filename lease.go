package holdfast

import (
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// maxPlaceTTL bounds the TTL of a place, and so the delay by waiters that die together. A hold that
// was granted by a notice ends with its place unless it is renewed.
const maxPlaceTTL = 5 * time.Second

// A leaseState is what a Client has of one owner.
type leaseState uint8

const (
	unsent     leaseState = iota // the store has nothing of it
	requesting                   // the request for the entry has no answer yet
	waiting                      // the store has a place for it
	held                         // the Client relies on it until the deadline
	ending                       // it has ended here, perhaps while its work goes on
	ended                        // requests for its release may be under way
)

// A lookReason is what the Client has learned of a lease since the last answer of the store.
type lookReason uint8

const (
	noLook  lookReason = iota
	granted            // a notice has told that it holds
	noticed            // a notice asks for a look
	failed             // the last request has failed
)

// A lease is what one owner has in the store: a place or a hold. Client.mu guards the fields,
// except for those that do not change after newLease and the atomic ones.
type lease struct {
	c       *Client
	name    string // in the store
	owner   string // the secret
	options Options
	op      *acquireOp // that waits for it; nil once it has the lock

	state    leaseState
	end      atomic.Pointer[error] // why it is no longer held: set when state becomes ending
	tokens   tokenBlock
	deadline atomic.Int64  // until when the Client may rely on it, a reading of the clock
	storeEnd time.Duration // until when the store may have it at most
	since    time.Duration // when it became a hold of its holder

	due   time.Duration // when the scheduler serves it
	index int           // in the schedule, or notScheduled
	busy  bool          // a request that may prolong it is in flight
	look  lookReason

	released *error // the result of its release; nil before

	first Lock    // that of the acquisition which made the lease
	locks []*Lock // first and those of reentrant acquisitions, until they are released
}

// A tokenBlock is the consecutive tokens of a grant. Own is that of the present holder.
type tokenBlock struct {
	first, own int64
	count      int // asked for
}

// newLease returns the lease of a new owner for an attempt of an operation, which sends the request
// at once. The context of its Lock has the values of that of the operation.
func (c *Client) newLease(a *acquireOp, full string) *lease {
	both := &struct { // one allocation
		lease
		locks [1]*Lock
	}{lease: lease{c: c, name: full, owner: rand.Text(), options: a.options, op: a, index: notScheduled}}
	l := &both.lease
	l.first.lease, l.first.holder, l.first.c, l.first.valuesCtx = l, c.holder, c, a.ctx
	l.locks = append(both.locks[:0], &l.first)
	a.lease, a.confirmed = l, false
	return l
}

// asked returns how long the lease is to last from its next renewal: as a place until it is held.
func (l *lease) asked() time.Duration {
	switch {
	case l.state < held && l.op.place > 0:
		return l.op.place
	case l.options.NoRenew && l.op == nil:
		return driver.MinTTL // It only looks.
	}
	return l.options.TTL
}

// bound applies MaxHold and NoRenew to the deadline of a lease and to its next renewal. The caller
// holds c.mu.
func (l *lease) bound() {
	deadline, last := time.Duration(l.deadline.Load()), l.options.NoRenew
	if l.state == held && l.options.MaxHold > 0 && deadline-l.since >= l.options.MaxHold {
		deadline, last = l.since+l.options.MaxHold, true
		l.deadline.Store(int64(deadline))
	}
	if l.due = min(l.due, deadline); l.state == held && last {
		l.due = deadline
	}
}

// checkHeld returns nil while the lock is held, and then the reason of its end. It reads the clock,
// and so does not depend on the scheduler; it marks the lease as lost if the deadline has passed.
func (l *lease) checkHeld() error {
	if end := l.end.Load(); end != nil {
		return *end
	}
	now := l.c.clock.now()
	if now < time.Duration(l.deadline.Load()) {
		return nil
	}
	reason := ErrExpired
	if l.options.MaxHold > 0 && now-l.since >= l.options.MaxHold {
		reason = ErrMaxHold
	}
	l.lose(reason)
	return *l.end.Load()
}

// lose ends a lease that its holder has not released. The store may still have it: work may run on
// until the holder calls Release.
func (l *lease) lose(reason error) {
	c := l.c
	lost := error(&LostError{Name: c.stripPrefix(l.name), Token: l.tokens.own, Reason: reason})
	c.mu.Lock()
	if l.op != nil && l.state == held { // Its caller has not got it, and goes on.
		l.op.restart(true, 0)
	}
	if !l.endLocked(&lost) {
		c.mu.Unlock()
		return
	}
	c.activeCalls.Add(1) // Close has not ended it, and waits for the hooks.
	defer c.activeCalls.Done()
	c.leave(l)
	c.mu.Unlock()
	l.emitEnd(Event{Kind: EventLost, Err: lost})
}

// endLocked ends a lease that is held, and the contexts of its Locks. Only the first call has an
// effect and returns true. The caller holds c.mu.
func (l *lease) endLocked(end *error) bool {
	if l.state != held {
		return false
	}
	l.state = ending
	l.end.Store(end)
	for _, lock := range l.locks {
		lock.endContext(end)
	}
	l.c.schedule.remove(l)
	return true
}

// release ends a hold that has state ending in the store, and reports the end. With keepUntil, a
// reading of the clock, the name stays taken until then. With pass the next caller of this Client
// may get it.
func (l *lease) release(keepUntil time.Duration, pass bool) error {
	c := l.c
	var began time.Duration
	if c.watched() || keepUntil != 0 {
		began = c.clock.now()
	}
	end := *l.end.Load()
	c.mu.Lock()
	c.activeCalls.Add(1) // Close waits for this release, and so for the hooks.
	defer c.activeCalls.Done()
	l.state = ended
	over := end == ErrHandedOver || pass && keepUntil == 0 && l.passOn()
	for l.busy { // Nothing is written after Release has returned.
		c.changed.Wait()
	}
	c.mu.Unlock()
	result := &noError
	if !over {
		if err := l.sendReleases(keepUntil, c.requestTimeout, false); err != nil {
			failed := err // on the heap only then
			if !errors.Is(err, ErrLost) {
				failed = opError("release", c.stripPrefix(l.name), err)
			}
			result = &failed
		}
	}
	c.mu.Lock()
	l.released = result
	c.leave(l)
	c.changed.Broadcast()
	c.mu.Unlock()
	if !c.watched() {
		return *result
	}
	event := Event{Kind: EventReleased, Took: c.clock.now() - began, Err: *result}
	switch {
	case end == ErrHandedOver:
		event.Kind = EventHandedOver
	case errors.Is(*result, ErrLost):
		event.Kind = EventLost
	case keepUntil != 0:
		event.Kind, event.Left = EventKept, keepUntil-began
	}
	l.emitEnd(event)
	return *result
}

// noError is the result of a release that has succeeded.
var noError error

// inBackground is the patience of a release whose caller has been answered.
const inBackground = -1

// awaitRelease waits until another call has released the lease, and returns its result.
func (l *lease) awaitRelease() error {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for l.released == nil {
		c.changed.Wait()
	}
	return *l.released
}

// sendReleases sends releases of a lease that has ended until one is answered, or the store cannot
// have the lease any more. After the patience it goes on in the background, where it ends when the
// Client is closed. If the Acquire of the lease has no answer, it may arrive after a release that
// found nothing: then the releases go on, whatever the store answers.
func (l *lease) sendReleases(keepUntil, patience time.Duration, unanswered bool) error {
	c := l.c
	c.mu.Lock()
	for l.busy { // It may prolong the lease, and storeEnd with it.
		c.changed.Wait()
	}
	c.mu.Unlock()
	applied := false // an earlier attempt may have been applied
	var until time.Duration
	for n := 0; ; n++ {
		req := driver.ReleaseRequest{Name: l.name, Owner: l.owner}
		if keepUntil != 0 && c.clock.now() < keepUntil {
			req.Keep = min(max(keepUntil-c.clock.now(), driver.MinTTL), driver.MaxTTL)
		}
		ours, err := request(c, context.Background(), "release", c.requestTimeout, func(ctx context.Context) (bool, error) {
			return c.store.Release(ctx, req)
		})
		if patience < 0 && n == 0 { // The next caller of this Client need not wait for the store.
			c.mu.Lock()
			c.leave(l)
			c.mu.Unlock()
		}
		switch {
		case err == nil && unanswered:
		case err == nil && !ours && (!applied || req.Keep > 0 || keepUntil > time.Duration(l.deadline.Load())):
			// A keep is reported as ours, and one that was to outlast the hold would be there.
			return &LostError{Name: c.stripPrefix(l.name), Token: l.tokens.own, Reason: ErrTaken}
		case err == nil:
			return nil
		case driver.Permanent(err):
			return err
		}
		applied = applied || !driver.IsNotApplied(err)
		now := c.clock.now()
		if n == 0 {
			until = l.storeEnd + c.guarantees.Grain
			if patience >= 0 {
				until = min(until, now+patience)
			}
		}
		if now >= until {
			if patience >= 0 {
				l.releaseInBackground()
			}
			return storeError(context.Background(), err)
		}
		pause := min(c.backoff.nthDelay(n), until-now)
		if err == nil {
			pause = min(time.Second<<min(n, 6), until-now)
		}
		stop := c.closing
		if patience >= 0 {
			stop = nil
		}
		select {
		case <-time.After(pause):
		case <-stop:
			if err == nil {
				return ErrClosed
			}
			patience, until = 0, min(until, now+c.requestTimeout) // Close waits for it as for a Release.
		}
	}
}

// releaseInBackground goes on with the release of a lease, unless the Client is closed.
func (l *lease) releaseInBackground() {
	if c := l.c; c.beginCall(context.Background()) == nil {
		c.activeCalls.Go(func() { _ = l.sendReleases(0, inBackground, false) })
		c.activeCalls.Done()
	}
}

// abandon ends a lease that no caller gets, and may release it in the background. The caller holds
// c.mu.
func (l *lease) abandon(release bool) {
	unanswered := l.state == requesting
	l.state = ended
	l.end.Store(&ErrReleased)
	l.c.schedule.remove(l)
	if release {
		l.c.activeCalls.Go(func() { _ = l.sendReleases(0, inBackground, unanswered) })
	}
}

// record describes a lease that is held.
func (l *lease) record() Record {
	c := l.c
	now := c.clock.now()
	return Record{
		Name:      c.stripPrefix(l.name),
		Holder:    l.first.holder,
		Token:     l.tokens.own,
		Since:     time.Now().Round(0).Add(l.since - now),
		Remaining: max(time.Duration(l.deadline.Load())-now, 0),
		Limit:     l.options.limit(),
		Metadata:  l.options.Metadata,
	}
}

// isHeld reports whether the lease is certainly in the store. The caller holds c.mu.
func (l *lease) isHeld() bool {
	return (l.state == held || l.state == ending) && l.c.clock.now() < time.Duration(l.deadline.Load())
}

// has reports whether the token is one of the block.
func (b tokenBlock) has(token int64) bool {
	return token != 0 && b.first <= token && token < b.first+int64(b.count)
}
