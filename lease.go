package holdfast

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// maxPlaceTTL bounds how long the place of a dead waiter delays those behind it. It is
	// maxFreedPlace where a store outside of the process ends what a dead process has left: only a
	// waiter that hangs delays others there, and each renewal costs processes that wait.
	maxPlaceTTL   = 5 * time.Second
	maxFreedPlace = 30 * time.Second

	// shortHold is how soon a hold granted by a notice is renewed for its TTL: most end before.
	shortHold = 100 * time.Millisecond
)

// A leaseState is how far an acquisition has come. Every lease ends by finish. Of one that a caller
// has, end comes first.
type leaseState uint8

const (
	inLine     leaseState = iota // it waits behind another of its Client
	unsent                       // the store has nothing of it
	requesting                   // the request for the entry has no answer yet
	waiting                      // the store has an entry of it, which does not hold as far as is known
	granted                      // the store has told that it holds; its caller does not have it yet
	held                         // its caller relies on it until the deadline
	winding                      // ReleaseAll has ended its Locks, and waits for the work under them
	ending                       // it has ended here; its release, or a renewal, is under way
	ended                        // its result is known; its release may go on in the background
)

// A lookReason is what has happened to a lease since its last request was sent.
type lookReason uint8

const (
	noLook  lookReason = iota
	noticed            // a notice asks for a look
	failed             // the last request has failed, or has shown a loss
)

// A lease is one acquisition, from the call to the end of its release. Until it holds, its caller's
// goroutine serves it, and then the schedule. Client.mu guards the fields from queue on, of the
// deadline only the changes. From the grant to the caller on, since and tokens do not change.
type lease struct {
	c       *Client
	op      string        // opAcquire, opTry or opAdopt
	ticket  *ticketFields // of an Adopt: its owner is that of the ticket, and there is no other
	options Options
	ctx     context.Context // of the call
	name    string          // in the store
	place   time.Duration   // of its requests: 0 without a place
	began   time.Duration

	queue  *nameQueue
	state  leaseState
	err    error         // why its caller gets no Lock; once it has ended, of its release
	since  time.Duration // when it was granted, or passed on to its caller
	due    time.Duration // when run sends the next request, or a hold is checked
	index  int           // in the schedule
	handle Lock          // what its caller gets: its own, or of the lease that it has joined
	locks  []*Lock       // handle and those of reentrant acquisitions: those not released, and the last

	// What the store has.
	owner     string // the secret
	tokens    tokenBlock
	deadline  atomic.Int64  // until when the Client may rely on it, a reading of the clock
	longest   time.Duration // for which it was requested: the store may have it as long at most
	confirmed bool          // an answer has confirmed the hold for its whole TTL
	look      lookReason
	inFlight  int // how many requests may prolong it

	// Of the call, until it has the Lock.
	heldUntil   time.Duration // soon after the end of the hold in the way, as the store has told it; or 0
	pauses      int
	further     bool // AcquireAll has got another before: the store is up
	waitEmitted bool // the hooks know that it waits
	wake        chan struct{}
}

// A tokenBlock is the consecutive tokens of a grant.
type tokenBlock struct {
	first int64
	count int   // asked for
	own   int64 // that of the present holder
}

// checkDeadline ends a hold whose time is over. It does not depend on the timer.
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
	works, lost := l.state == winding, error(&LostError{Name: c.stripPrefix(l.name), Token: l.tokens.own, Reason: reason})
	if !l.end(&lost) {
		c.mu.Unlock()
		return
	}
	if works && reason != ErrTaken {
		_ = l.giveBack(0, false)
		c.logWarning(context.Background(), "released, though work under the lock has not returned", c.stripPrefix(l.name), nil)
		return
	}
	c.activeCalls.Add(1) // Close waits for its end, and then for the hook.
	defer c.activeCalls.Done()
	l.finish(lost)
	c.mu.Unlock()
	l.emit(Event{Kind: EventLost, Held: c.clock.now() - l.since, Err: lost})
}

// end ends a lease that a caller has on this side. Later answers and notices of the store for it
// are dropped, and the contexts of its Locks end. Only the first call has an effect and returns
// true. The caller holds c.mu, and sees to its finish.
func (l *lease) end(reason *error) bool {
	if l.state >= ending {
		return false
	}
	l.state = ending
	for _, lock := range l.locks {
		lock.endContext(reason)
	}
	s := &l.c.schedule
	i := len(s.heap) - 1
	last := s.heap[i]
	s.heap[i], s.heap = nil, s.heap[:i]
	if last != l {
		s.sift(l.index, last)
	}
	return true
}

// finish gives a lease that has ended its result, takes it from the Client, and makes the first of
// the line the head in its place. The caller holds c.mu.
func (l *lease) finish(result error) {
	c, q, i, wasHeld := l.c, l.queue, slices.Index(l.queue.leases, l), l.state == ending
	l.state, l.err = ended, result
	c.changed.Broadcast()
	switch {
	case i < 0:
		q.line = slices.DeleteFunc(q.line, func(other *lease) bool { return other == l })
	case q.head == l && len(q.line) > 0:
		next := q.line[0]
		q.line[0], q.line = nil, q.line[1:]
		q.leases[i], q.head = next, next
		if next.state == inLine { // It was not passed on.
			next.state = unsent
			if wasHeld && !errors.Is(result, ErrTaken) {
				q.known = &HeldError{Record: l.record(), Self: true}
				if result == nil { // The store has answered, unless it was handed over.
					q.outageFrom = 0
				}
				q.answeredAt = max(q.answeredAt, min(c.clock.now(), time.Duration(l.deadline.Load())-l.options.TTL))
			}
		}
		next.signal()
	default:
		q.leases = slices.Delete(q.leases, i, i+1)
		if q.head == l {
			q.head = nil
		}
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
	return l.err
}

// giveBack releases a hold that its holder has ended, or with pass passes it on if that is safe. It
// finishes the lease and reports the end. With keepUntil, a reading of the clock, the name stays
// taken until then. The caller holds c.mu since before end, and giveBack unlocks it: a notice in
// between would be dropped, and a broken lease passed on.
//
// The next caller in line gets a lease under its next token, without a request, in the local turn,
// which lasts Config.LocalTurn from the grant of the store. After it all Clients compete at the
// store. A lease that is passed on is surely held: no renewal is due, in flight, or has failed, no
// notice has come, and no Extend has made it longer than its TTL.
func (l *lease) giveBack(keepUntil time.Duration, pass bool) (result error) {
	c, q, began := l.c, l.queue, time.Now()
	c.activeCalls.Add(1) // Close waits for the release and the hook.
	defer c.activeCalls.Done()
	var now time.Duration
	if pass = pass && keepUntil == 0 && q.head == l && len(q.line) > 0 && !c.closed; pass {
		now = c.clock.now()
	}
	if pass && now < min(q.turnEnd, l.due, time.Duration(l.deadline.Load())) &&
		l.inFlight == 0 && l.look == noLook && l.longest <= l.options.TTL && l.tokens.has(l.tokens.own+1) &&
		l.options.passableTo(&q.line[0].options) {
		next := q.line[0]
		next.owner, next.tokens, next.confirmed, next.longest = l.owner, l.tokens, l.confirmed, l.longest
		next.state, next.since = held, now
		next.tokens.own++
		next.deadline.Store(l.deadline.Load())
		next.checkAt(now, l.due)
	} else {
		for l.inFlight > 0 { // Nothing is written after the release.
			c.changed.Wait()
		}
		c.mu.Unlock()
		result = l.sendReleases(l.owner, keepUntil, min(l.longest+c.guarantees.Grain, c.config.RequestTimeout), nil, false)
		c.mu.Lock()
		switch {
		case result == ErrTaken:
			result = &LostError{Name: c.stripPrefix(l.name), Token: l.tokens.own, Reason: ErrTaken}
		case result != nil:
			if errors.Is(result, ErrUnavailable) && !c.closed {
				l.releaseInBackground(0, false)
			}
			result = opError("release", c.stripPrefix(l.name), result)
		}
	}
	l.finish(result)
	c.mu.Unlock()
	if !c.watched {
		return result
	}
	ended := c.clock.now()
	event := Event{Kind: EventReleased, Held: ended - l.since, Took: time.Since(began), Err: result}
	switch {
	case errors.Is(result, ErrLost):
		event.Kind = EventLost
	case keepUntil != 0:
		event.Kind, event.Left = EventKept, keepUntil-ended+event.Took
	}
	l.emit(event)
	return result
}

// releaseInBackground releases what the store may have of the owner of a lease. The caller holds
// c.mu. Once the Client is closed, it is a call that Close waits for.
func (l *lease) releaseInBackground(keepUntil time.Duration, unanswered bool) {
	c, owner, patience := l.c, l.owner, l.longest+l.c.guarantees.Grain
	c.activeCalls.Go(func() { _ = l.sendReleases(owner, keepUntil, patience, c.closing, unanswered) })
}

// sendReleases sends releases for an owner of the lease until one is answered, or for patience
// after the first. Once stop is closed, it goes on for a request timeout at most. An Acquire that
// is unanswered may arrive after a release that found nothing: the releases for it go on until
// stop, whatever the store answers. It returns ErrTaken if the store had the entry no more.
func (l *lease) sendReleases(owner string, keepUntil, patience time.Duration, stop <-chan struct{}, unanswered bool) error {
	c := l.c
	var until time.Duration
	applied := false // an earlier attempt may have been applied
	for n := 0; ; n++ {
		req := driver.ReleaseRequest{Name: l.name, Owner: owner}
		if keepUntil != 0 && keepUntil > c.clock.now() {
			req.Keep = min(max(keepUntil-c.clock.now(), driver.MinTTL), driver.MaxTTL)
		}
		ours, err := request(c, context.Background(), "release", c.config.RequestTimeout, func(ctx context.Context) (bool, error) {
			return c.store.Release(ctx, req)
		})
		switch {
		case err == nil && unanswered:
		case err == nil && !ours && (!applied || req.Keep > 0 || keepUntil > time.Duration(l.deadline.Load())):
			return ErrTaken // A keep is reported as ours, and one that was to outlast the hold would be there.
		case err == nil:
			return nil
		case driver.Permanent(err):
			return err
		}
		applied = applied || !driver.IsNotApplied(err)
		now := c.clock.now()
		if until = cmp.Or(until, now+patience); now >= until {
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

// record describes the hold of a lease. The caller holds c.mu.
func (l *lease) record() Record {
	c := l.c
	now := c.clock.now()
	return Record{
		Name:      c.stripPrefix(l.name),
		Holder:    l.handle.Holder(),
		Token:     l.tokens.own,
		Since:     time.Now().Round(0).Add(l.since - now),
		Remaining: max(time.Duration(l.deadline.Load())-now, 0),
		Limit:     l.options.limit(),
		Metadata:  l.options.Metadata,
	}
}

// isHeld reports whether a caller relies on the lease, and may. The caller holds c.mu.
func (l *lease) isHeld() bool {
	return l.state == held && l.c.clock.now() < time.Duration(l.deadline.Load())
}

// has reports whether the token is one of the block.
func (b tokenBlock) has(token int64) bool {
	return token != 0 && b.first <= token && token < b.first+int64(b.count)
}
