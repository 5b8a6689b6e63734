package holdfast

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// maxPlaceTTL bounds how long the place of a dead waiter delays those behind it. Where a store
// outside of the process ends what a dead process has left, only a waiter that hangs delays others:
// there a place lasts maxFreedPlace, since each renewal costs waiting processes time of a
// processor.
const (
	maxPlaceTTL   = 5 * time.Second
	maxFreedPlace = 20 * time.Second
)

// shortHold is how soon a hold that was granted by a notice is renewed, for its TTL: most holds
// have ended before.
const shortHold = 100 * time.Millisecond

// A leaseState is what a Client has of one owner. Every lease ends by end and then finish.
type leaseState uint8

const (
	unsent     leaseState = iota // the store has nothing of it
	requesting                   // the request for the entry has no answer yet
	waiting                      // the store has a place for it
	held                         // the Client relies on it until the deadline
	ending                       // it has ended here; its work, or its release, is under way
	ended                        // its result is known; its release may go on in the background
)

// A lookReason is what the Client has learned of a lease since the last answer of the store.
type lookReason uint8

const (
	noLook  lookReason = iota
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

	state     leaseState
	result    error // of its release, once it has ended
	tokens    tokenBlock
	deadline  atomic.Int64  // until when the Client may rely on it, a reading of the clock
	longest   time.Duration // for which it was requested: the store may have it as long at most
	since     time.Duration // when it became a hold of its holder
	confirmed bool          // an answer has confirmed the hold for its whole TTL

	due   time.Duration // when its operation asks for it, or the scheduler serves the hold
	index int           // in the schedule, or notScheduled
	look  lookReason

	inFlight int // how many requests may prolong the hold

	first Lock    // that of the acquisition which made the lease
	locks []*Lock // first and those of reentrant acquisitions: those not released, and the last
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
	}{lease: lease{c: c, name: full, owner: rand.Text(), options: a.options, op: a, longest: a.options.TTL, index: notScheduled}}
	l := &both.lease
	l.first.lease, l.first.holder, l.first.c, l.first.valuesCtx = l, c.config.Holder, c, a.ctx
	l.locks = append(both.locks[:0], &l.first)
	a.lease = l
	return l
}

// noteAnswer records the answer to a request that was sent at sent for the time d: the store has
// the entry. It counts d from a later moment than sent, and never shortens it. The caller holds
// c.mu.
func (l *lease) noteAnswer(sent, d time.Duration, entry driver.Entry) {
	l.tokens.first = cmp.Or(l.tokens.first, entry.Token)
	l.deadline.Store(max(l.deadline.Load(), int64(sent+driver.Validity(d))))
	l.confirmed = l.confirmed || entry.State == driver.Held && d >= l.options.TTL
	if d >= l.options.TTL || !l.confirmed { // A short Extend leaves the renewals as they are.
		l.due = sent + min(d, l.options.TTL)/3
	}
}

// checkDeadline ends a hold whose time is over. It does not depend on the scheduler.
func (l *lease) checkDeadline() {
	if l.c.clock.now() >= time.Duration(l.deadline.Load()) {
		l.lose(ErrExpired)
	}
}

// lose ends a hold that its holder has not released. The store may still have it: work may run on
// until the holder calls Release. Where ReleaseAll waits for that work, it is released.
func (l *lease) lose(reason error) {
	c := l.c
	c.mu.Lock()
	if most := l.options.MaxHold; reason == ErrExpired && most > 0 && time.Duration(l.deadline.Load())-l.since >= most {
		reason = ErrMaxHold
	}
	lost := error(&LostError{Name: c.stripPrefix(l.name), Token: l.tokens.own, Reason: reason})
	if !l.end(&lost) {
		c.mu.Unlock()
		return
	}
	if l.locks[0].contextErr() != lost && reason != ErrTaken {
		_ = l.release(0, false)
		c.logWarning(context.Background(), "released, though work under the lock has not returned", c.stripPrefix(l.name), nil)
		return
	}
	l.finish(lost)
	c.activeCalls.Add(1) // Close has not ended it, and waits for the hooks.
	defer c.activeCalls.Done()
	c.mu.Unlock()
	l.emitEnd(Event{Kind: EventLost, Err: lost})
}

// end ends a lease on this side. Later answers and notices of the store for it are dropped, and the
// contexts of its Locks end. Only the first call has an effect and returns true. The caller holds
// c.mu, and sees to its finish.
func (l *lease) end(reason *error) bool {
	if l.state >= ending {
		return false
	}
	l.state = ending
	for _, lock := range l.locks {
		lock.endContext(reason)
	}
	l.c.schedule.remove(l)
	return true
}

// finish gives a lease that has ended its result, takes it from the Client, and makes the first of
// the line the head in its place. The caller holds c.mu.
func (l *lease) finish(result error) {
	c, q := l.c, l.c.queues[l.name]
	l.state, l.result = ended, result
	c.changed.Broadcast()
	switch {
	case q == nil:
		return
	case q.head == l && len(q.line) > 0:
		if l.op == nil {
			q.known = &HeldError{Record: l.record(), Self: true}
			q.answeredAt = max(q.answeredAt, time.Duration(l.deadline.Load())-l.options.TTL)
		}
		q.replace(l, c.newLease(q.popLine(), l.name))
	default:
		q.replace(l, nil)
	}
	if len(q.leases) == 0 {
		delete(c.queues, l.name)
		*q = nameQueue{line: q.line[:0], leases: q.leases[:0]}
		c.spareQueue = q
	}
}

// awaitFinish waits until a lease that has ended is finished, and returns its result.
func (l *lease) awaitFinish() error {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for l.state != ended {
		c.changed.Wait()
	}
	return l.result
}

// abandon ends and finishes a lease that no caller gets. If the store may have it, it is released
// in the background. The caller holds c.mu.
func (l *lease) abandon() {
	state := l.state
	if l.end(&ErrReleased); state != unsent {
		l.releaseInBackground(state == requesting)
	}
	l.finish(nil)
}

// release releases a hold that its holder has ended, finishes it, and reports that. With keepUntil,
// a reading of the clock, the name stays taken until then. With pass the next caller of this Client
// may get it. The caller holds c.mu, which release unlocks.
func (l *lease) release(keepUntil time.Duration, pass bool) (result error) {
	c := l.c
	var began time.Duration
	if c.watched {
		began = c.clock.now()
	}
	c.activeCalls.Add(1) // Close waits for this release, and so for the hooks.
	defer c.activeCalls.Done()
	if !pass || keepUntil != 0 || !l.passOn() {
		result = l.sendReleases(keepUntil, false, false)
		if result != nil && !errors.Is(result, ErrLost) {
			result = opError("release", c.stripPrefix(l.name), result)
		}
	}
	l.finish(result)
	c.mu.Unlock()
	if !c.watched {
		return result
	}
	event := Event{Kind: EventReleased, Took: c.clock.now() - began, Err: result}
	switch {
	case errors.Is(result, ErrLost):
		event.Kind = EventLost
	case keepUntil != 0:
		event.Kind, event.Left = EventKept, keepUntil-began
	}
	l.emitEnd(event)
	return result
}

// releaseInBackground releases what the store may have of a lease that has ended. The caller holds
// c.mu, and is a call that Close waits for, unless the Client is not closed.
func (l *lease) releaseInBackground(unanswered bool) {
	l.c.activeCalls.Go(func() {
		l.c.mu.Lock()
		defer l.c.mu.Unlock()
		_ = l.sendReleases(0, true, unanswered)
	})
}

// sendReleases sends releases of a lease that has ended until one is answered, for a request
// timeout after the first. Then it returns, and they go on in the background until the store cannot
// have the lease any more, or for a request timeout after Close. If the Acquire of the lease is
// unanswered, it may arrive after a release that found nothing: then the releases go on, whatever
// the store answers. The caller holds c.mu, which is unlocked meanwhile.
func (l *lease) sendReleases(keepUntil time.Duration, background, unanswered bool) error {
	c := l.c
	for l.inFlight > 0 { // Nothing is written after the release.
		c.changed.Wait()
	}
	c.mu.Unlock()
	defer c.mu.Lock()
	stop, patience := c.closing, l.longest+c.guarantees.Grain
	if !background {
		stop, patience = nil, min(patience, c.config.RequestTimeout)
	}
	var until time.Duration
	applied := false // an earlier attempt may have been applied
	for n := 0; ; n++ {
		req := driver.ReleaseRequest{Name: l.name, Owner: l.owner}
		if keepUntil != 0 && keepUntil > c.clock.now() {
			req.Keep = min(max(keepUntil-c.clock.now(), driver.MinTTL), driver.MaxTTL)
		}
		ours, err := request(c, context.Background(), "release", c.config.RequestTimeout, func(ctx context.Context) (bool, error) {
			return c.store.Release(ctx, req)
		})
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
		if until = cmp.Or(until, now+patience); now >= until {
			if c.mu.Lock(); !background && !c.closed {
				l.releaseInBackground(false)
			}
			c.mu.Unlock()
			return storeError(context.Background(), err)
		}
		pause := min(c.config.Backoff.nthDelay(n), until-now)
		if err == nil {
			pause = min(time.Second<<min(n, 6), until-now)
		}
		select {
		case <-time.After(pause):
		case <-stop:
			if err == nil {
				return ErrClosed
			}
			stop, until = nil, min(until, now+c.config.RequestTimeout)
		}
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
	return l.state == held && l.c.clock.now() < time.Duration(l.deadline.Load())
}

// has reports whether the token is one of the block.
func (b tokenBlock) has(token int64) bool {
	return token != 0 && b.first <= token && token < b.first+int64(b.count)
}
