package holdfast

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Acquire waits until it has the lock, or ctx ends, or Options.Wait or Options.MaxAttempts is
// used up. The ctx bounds the waiting only; [Lock.Context] ends when the hold does.
//
// When ctx ends, waiting between requests ends at once. If ctx is canceled while a request is in
// flight, Acquire returns when the request is answered, or after Config.RequestTimeout. It
// returns at most a second after the deadline of ctx.
//
// Callers of one Client that want the lock exclusively are served first come, first served. The
// first of them, and each shared or limited caller, has a place in the queue of the store, if
// Guarantees().Queue: it gets the lock in its turn, by a notice of the store. With any other store
// it tries again when the store signals a release, when the holder's time ends, or after a pause
// (see [Backoff]), whichever comes first.
//
// Errors: [ErrHeld] with a [HeldError] if the lock was held throughout, joined with ctx.Err() (or
// context.DeadlineExceeded, for Wait) where a wait was cut short; [ErrUnavailable], [ErrInvalid],
// [ErrUnsupported], [ErrCorrupt], [ErrClosed]. After an error nothing is held: if the store may
// have granted the lock all the same, the lock is released in the background.
func (c *Client) Acquire(ctx context.Context, name string, o *Options) (*Lock, error) {
	return c.acquire(ctx, name, o, false, false)
}

// TryAcquire makes one attempt and does not wait for the lock. If the lock is held, by another
// goroutine of this Client too, the error is a [HeldError]; if that is not known, it matches
// [ErrUnavailable]. If ctx is canceled while a request is in flight, TryAcquire returns when the
// request is answered, or after Config.RequestTimeout. It returns at most a second after the
// deadline of ctx.
func (c *Client) TryAcquire(ctx context.Context, name string, o *Options) (*Lock, error) {
	return c.acquire(ctx, name, o, true, false)
}

// An acquireOp is one call of Acquire or TryAcquire. While its lease waits, Client.mu guards the
// fields from known on: the scheduler sets them, too.
type acquireOp struct {
	c         *Client
	ctx       context.Context
	name      string
	full      string // in the store
	options   Options
	once      bool          // a single attempt
	place     time.Duration // of its requests: 0 without a place
	block     int           // how many tokens the last request asks for
	queue     *nameQueue    // of which it is the head, or nil
	calledAt  time.Duration
	startedAt time.Duration // when it sent its first request or joined a queue, 0 before
	contended bool          // the hooks were notified that it waits

	heldUntil time.Duration // the end of the hold in the way, as the store has told it; 0 if unknown

	known    error         // a *HeldError, or why that is not known; nil before the first answer
	answered bool          // the store has answered before
	failing  time.Duration // when the outage began, or is announced to end; 0 without one
	pauses   int
	lost     bool          // the lease that waits is not in the store
	failure  error         // why the operation is over
	wake     chan struct{} // has room for one
}

// acquire is Acquire, or TryAcquire with once. With answered the store is known to be up, so that
// an outage is waited out.
func (c *Client) acquire(ctx context.Context, name string, o *Options, once, answered bool) (*Lock, error) {
	full, err := c.fullName(name)
	if err != nil {
		return nil, opError("acquire", name, err)
	}
	a := &acquireOp{c: c, ctx: ctx, name: name, full: full, options: c.withDefaults(o), once: once, answered: answered}
	if err := c.checkCall(ctx, &a.options); err != nil {
		return nil, opError("acquire", name, err)
	}
	op := "acquire"
	if once {
		op = "try"
	} else if a.options.MaxAttempts == 0 {
		a.place = placeTTL(a.options.TTL)
	}
	a.ctx = c.start(ctx, op, name, &a.options)
	a.calledAt = c.clock.now()
	if a.options.Wait > 0 && !once {
		limited, cancel := context.WithTimeoutCause(a.ctx, a.options.Wait, waitOver(a.options.Wait))
		defer cancel()
		a.ctx = limited
	}
	var lock *Lock
	if err = c.beginCall(); err == nil {
		defer c.activeCalls.Done()
		for again := true; again; again = err == errEndedOutside {
			a.queue = nil
			if lock, err = a.enter(); lock == nil && err == nil {
				lock, err = a.fromStore()
			}
		}
	}
	if err != nil {
		err = a.wrapError(err)
	}
	if c.hooks.Event != nil {
		a.emitResult(lock, err)
	}
	if c.log != nil && err == nil {
		c.log.DebugContext(a.ctx, "lock acquired", "name", name, "token", lock.Token(), "waited", c.clock.now()-a.calledAt)
	}
	return lock, err
}

// checkCall checks the arguments of a call.
func (c *Client) checkCall(ctx context.Context, o *Options) error {
	if err := o.validate(); err != nil {
		return err
	}
	if ctx == nil {
		return errNoContext
	}
	return ctx.Err()
}

// fromStore sends requests, each of a new owner, until one of them has the lock or the operation is
// over. A request that the store keeps in its queue, or whose answer is lost, is awaited.
func (a *acquireOp) fromStore() (*Lock, error) {
	c := a.c
	for attempts := 1; ; attempts++ {
		l, req := a.begin()
		if err := a.ctx.Err(); err != nil {
			return a.giveUp(l, false, err)
		}
		sent := c.clock.now()
		c.mu.Lock()
		l.deadline.Store(int64(sent + driver.Validity(a.place))) // A notice may come before the answer.
		c.mu.Unlock()
		if a.startedAt == 0 {
			a.startedAt = sent
		}
		res, err := request(c, a.ctx, "acquire", min(c.requestTimeout, a.options.TTL), func(ctx context.Context) (driver.Result, error) {
			return c.store.Acquire(ctx, req)
		})

		c.mu.Lock()
		var pause time.Duration
		entered := true // the store may have an entry of this owner
		switch {
		case err != nil:
			entered = !driver.IsNotApplied(err)
			pause = a.noteFailure(sent, err)
			l.storeEnd = c.clock.now() + a.options.TTL
		case res.Granted:
			a.noteAnswer()
			l.deadline.Store(0)
			l.confirm(sent, a.options.TTL)
			if l.state == requesting {
				if err = l.hold(res.Token, req.Tokens); err != nil {
					a.noteFailure(c.clock.now(), err)
					a.lost = true
				}
			}
		case res.Waiting:
			a.noteAnswer()
			a.noteHolder(res.Held)
			if l.state == requesting {
				l.state, l.tokens.first = waiting, res.Token
				l.confirm(sent, a.place)
				a.lookInTime(l)
			}
		default:
			entered = false
			a.noteAnswer()
			a.noteHolder(res.Held)
			pause = c.backoff.nthDelay(a.pauses)
			if a.pauses++; res.Held.Remaining > 0 {
				pause = min(pause, res.Held.Remaining+time.Millisecond+jitter(4*time.Millisecond))
			}
			if a.once || attempts == a.options.MaxAttempts {
				a.failure = a.known
			}
		}
		if entered && l.state <= held && l.index == notScheduled && a.failure == nil && !a.lost {
			switch {
			case l.state == held || l.look == noticed:
				l.due = c.clock.now()
			case err != nil:
				l.look, l.due = failed, c.clock.now()+pause
			}
			c.reschedule(l)
		}
		granted, fail := l.state == held && res.Granted, a.failure
		if granted && fail == nil && a.ctx.Err() == nil {
			a.take(l)
			c.mu.Unlock()
			return &l.first, nil
		}
		c.mu.Unlock()
		if cut := a.ctx.Err(); cut != nil {
			fail = cut
		}
		if fail != nil {
			return a.giveUp(l, entered, fail)
		}
		if err == nil {
			a.reportContended()
		}
		if entered {
			lock, err := a.await(l)
			if lock != nil || err != nil {
				return lock, err
			}
		} else if err := a.sleep(l, pause); err != nil {
			return a.giveUp(l, false, err)
		}
	}
}

// begin makes the lease of the next attempt, with a new owner, and its request.
func (a *acquireOp) begin() (*lease, driver.Request) {
	c, o := a.c, &a.options
	l := c.newLease(a.ctx, a.full, o)
	l.op = a
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.queue != nil {
		a.queue.head = l
	} else {
		c.others[l.owner] = l
	}
	a.block = a.tokensToRequest()
	return l, driver.Request{
		Name: a.full, Owner: l.owner, Holder: c.holder, TTL: o.TTL, Place: a.place, Limit: o.limit(),
		Tokens: a.block, Detached: o.Detached, Metadata: o.Metadata,
	}
}

// take makes the held lease that of the caller. The caller of take holds c.mu.
func (a *acquireOp) take(l *lease) {
	l.op = nil
	if q := a.queue; q != nil {
		q.failing = 0
		if q.known = nil; len(q.waiters) > 0 {
			q.known = &HeldError{Record: l.record(), Self: true}
		}
		q.turnEnd = l.since + a.c.localTurn
		if a.options.Reentrant {
			q.joinWaiters()
		}
	}
}

// await waits for a lease that has a place, or whose request has no answer: the scheduler and the
// notices of the store change its state. It returns nil and no error if the store does not have it.
func (a *acquireOp) await(l *lease) (*Lock, error) {
	c := a.c
	a.makeWake()
	for {
		c.mu.Lock()
		switch {
		case l.state == held && a.isConfirmed(l):
			a.take(l)
			c.mu.Unlock()
			return &l.first, nil
		case l.state > held:
			c.mu.Unlock()
			return nil, errEndedOutside
		case a.lost:
			unanswered := l.state == requesting
			a.lost, l.state = false, ended
			c.schedule.remove(l)
			delete(c.others, l.owner)
			c.mu.Unlock()
			if unanswered {
				c.activeCalls.Go(func() { l.releaseUntilExpired(true) })
			}
			return nil, nil
		}
		failure := a.failure
		c.mu.Unlock()
		if failure != nil {
			return a.giveUp(l, true, failure)
		}
		select {
		case <-a.wake:
		case <-a.ctx.Done():
			return a.giveUp(l, true, a.ctx.Err())
		case <-c.closing:
			return a.giveUp(l, true, ErrClosed)
		}
	}
}

// isConfirmed reports whether a hold is confirmed for as long as its caller needs. One that is not
// renewed, or outlives the process, waits for an answer that confirms its whole TTL.
func (a *acquireOp) isConfirmed(l *lease) bool {
	if !a.options.NoRenew && !a.options.Detached {
		return true
	}
	want := l.since + driver.Validity(a.options.TTL)
	if end := l.maxHoldEnd(); end > 0 {
		want = min(want, end)
	}
	return time.Duration(l.deadline.Load()) >= want
}

// sleep waits for d, or until a notice comes for the lease, which the store has refused.
func (a *acquireOp) sleep(l *lease, d time.Duration) error {
	a.makeWake()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a.wake:
	case <-a.ctx.Done():
		return a.ctx.Err()
	case <-a.c.closing:
		return ErrClosed
	}
	if a.queue == nil {
		a.c.mu.Lock()
		delete(a.c.others, l.owner)
		a.c.mu.Unlock()
	}
	return nil
}

// giveUp ends the operation, of which l is the last lease, with err. If the store may have an entry
// of l, that is released in the background, and the next caller of this Client goes on after it.
func (a *acquireOp) giveUp(l *lease, entered bool, err error) (*Lock, error) {
	c := a.c
	c.mu.Lock()
	defer c.mu.Unlock()
	unanswered := l.state == requesting
	if q := a.queue; q != nil {
		q.known = a.known
		if a.failure != nil && errors.Is(err, ErrUnavailable) {
			c.failWaiters(q, err)
		}
	}
	c.schedule.remove(l)
	switch {
	case l.state > held: // It was released from outside.
	case !entered:
		c.leave(l)
	default:
		l.state = releasing
		l.end.Store(&ErrReleased)
		c.activeCalls.Go(func() { l.releaseUntilExpired(unanswered) })
	}
	return nil, err
}

// lookInTime makes the next look at a place come shortly after the end of the hold before it, if that
// is sooner. The caller holds c.mu.
func (a *acquireOp) lookInTime(l *lease) {
	if end := a.heldUntil; end > a.c.clock.now() {
		l.due = min(l.due, end+time.Millisecond+jitter(4*time.Millisecond))
	}
}

// makeWake makes the channel that ends a pause. What came before shows in the state of the lease.
func (a *acquireOp) makeWake() {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	if a.wake == nil {
		a.wake = make(chan struct{}, 1)
	}
}

// signal wakes the operation. The caller holds c.mu.
func (a *acquireOp) signal() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// noteAnswer records that the store has answered. The caller holds c.mu.
func (a *acquireOp) noteAnswer() {
	a.answered, a.failing = true, 0
	if a.queue != nil {
		a.queue.failing = 0
	}
}

// noteHolder records the hold in the way. The caller holds c.mu.
func (a *acquireOp) noteHolder(rec driver.Record) {
	limit := a.options.limit()
	// Shared holds tolerate each other, and limited ones tolerate them: a waiter is in front then.
	tolerated := rec.Limit == driver.Shared && limit != 0 || limit == driver.Shared && rec.Limit > 1
	self := !tolerated && len(a.c.leasesOf(a.full, func(l *lease) bool { return l.hasToken(rec.Token) })) > 0
	rec.Name, a.heldUntil = a.name, 0
	if rec.Remaining > 0 {
		a.heldUntil = a.c.clock.now() + rec.Remaining
	}
	a.known = &HeldError{Record: rec, Self: self}
	if a.queue != nil {
		a.queue.known = a.known
	}
}

// noteFailure records that a request that was sent at sent has failed, and returns the pause until
// the next one. It sets failure if there should be none: the store will never do it, has refused the
// very first request, or has not answered for Config.MaxOutage. A single attempt has time for a
// second request, to learn the outcome. If the store has announced that it can serve later, the time
// counts from that moment, and a deadline of ctx alone bounds it. The caller holds c.mu.
func (a *acquireOp) noteFailure(sent time.Duration, err error) time.Duration {
	c := a.c
	if a.ctx.Err() != nil {
		return 0 // The end of the caller's time shows nothing of the store.
	}
	now := c.clock.now()
	var later *driver.RetryError
	announced := errors.As(err, &later) && !a.once
	if _, isHeld := a.known.(*HeldError); !isHeld || !announced {
		a.known = storeError(a.ctx, err)
	}
	first := a.failing == 0
	if first {
		a.failing = sent
		if q := a.queue; q != nil {
			if q.failing == 0 {
				q.failing = sent
			}
			a.failing = max(q.failing, a.startedAt)
		}
	}
	limit := c.outage
	if a.once {
		limit = 2 * c.requestTimeout
	}
	bounded, pause := false, c.backoff.nthDelay(a.pauses)
	a.pauses++
	if announced {
		_, bounded = a.ctx.Deadline()
		if !a.answered {
			a.answered, a.failing = true, max(a.failing, now+later.After)
		}
		if later.After > 0 {
			pause = min(later.After, time.Second) + jitter(4*time.Millisecond)
		}
	}
	// A request that was not sent in time, as behind one that hangs, has not been refused.
	refused := driver.IsNotApplied(err) && !errors.Is(err, context.DeadlineExceeded) && (a.once || !a.answered)
	switch {
	case driver.Permanent(err), refused, !bounded && now-a.failing >= limit:
		a.failure = storeError(a.ctx, err)
	case first:
		c.logWarning(a.ctx, "store unavailable, trying again", a.name, err)
	}
	if a.queue != nil {
		a.queue.known = a.known
	}
	return pause
}

// emitResult calls the hooks for the end of the operation.
func (a *acquireOp) emitResult(lock *Lock, err error) {
	c := a.c
	took := c.clock.now() - a.calledAt
	if a.contended {
		c.emit(a.ctx, Event{Kind: EventWaited, Name: a.name, Took: took, Err: err})
	}
	switch {
	case err != nil:
		c.emitFailure(a.ctx, a.name, took, err)
	case lock == &lock.lease.first:
		lock.lease.emit(Event{Kind: EventAcquired, Took: took, TTL: lock.lease.options.TTL})
	default:
		c.emit(a.ctx, Event{Kind: EventJoined, Name: a.name, Token: lock.Token(), Took: took, TTL: lock.lease.options.TTL})
	}
}

// reportContended notifies the hooks and the log, once, that the operation has to wait.
func (a *acquireOp) reportContended() {
	c := a.c
	if a.contended || c.hooks.Event == nil && c.log == nil {
		return
	}
	a.contended = true
	c.mu.Lock()
	holder, isHeld := a.known.(*HeldError)
	c.mu.Unlock()
	if !isHeld { // It waits behind a goroutine that has no answer yet.
		holder = &HeldError{Record: Record{Name: a.name, Holder: c.holder}, Self: true}
	}
	if c.log != nil {
		c.log.DebugContext(a.ctx, "waiting for lock", "name", a.name,
			"holder", holder.Record.Holder, "since", holder.Record.Since, "self", holder.Self)
	}
	by := holder.Record
	c.emit(a.ctx, Event{Kind: EventWaiting, Name: a.name, By: &by})
}

// wrapError returns the error that the caller gets for err.
func (a *acquireOp) wrapError(err error) error {
	if cut := a.ctx.Err(); cut != nil && errors.Is(err, cut) {
		known := a.known
		if known == nil {
			known = errNotAnswered
		}
		var waited time.Duration
		if a.startedAt != 0 {
			waited = a.c.clock.now() - a.startedAt
		}
		err = &waitError{waited: waited, ctxErr: cut, cause: context.Cause(a.ctx), lastErr: known}
	}
	return opError("acquire", a.name, err)
}

var (
	// errNotAnswered is the error while nothing is known of a name.
	errNotAnswered = fmt.Errorf("%w: it has not answered yet", ErrUnavailable)

	// errEndedOutside reports that ReleaseAll has ended the lease before the caller had it.
	errEndedOutside = errors.New("ended from outside")

	// errAnsweredLate is the error of a grant that came after its end.
	errAnsweredLate = fmt.Errorf("%w: the answer came after the end of the TTL", ErrUnavailable)
)

// request makes one request to the store, on the caller's goroutine, and returns its result. The
// request ends when it is answered, after timeout, or at the deadline of ctx. It does not end when
// ctx is canceled, so that its outcome becomes known. A store in the memory of this process answers
// at once and gets ctx itself. All requests go through this function, except those of List; op is
// what the hooks get.
func request[T any](
	c *Client, ctx context.Context, op string, timeout time.Duration, call func(context.Context) (T, error),
) (value T, err error) {
	if c.hooks.Event != nil {
		began := c.clock.now()
		defer func() { c.emitRequest(ctx, op, c.clock.now()-began, err) }()
	}
	if c.guarantees.InProcess {
		return call(ctx)
	}
	deadline := time.Now().Add(timeout)
	callerDeadline, ok := ctx.Deadline()
	byCaller := ok && callerDeadline.Before(deadline)
	if byCaller {
		deadline = callerDeadline
	}
	limited, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	value, err = call(limited)
	if err != nil {
		expired := limited.Err() != nil
		if err == context.DeadlineExceeded || expired && !driver.IsNotApplied(err) {
			if byCaller && expired {
				<-ctx.Done() // Its timer may fire a little later than the deadline.
			}
			if err = ctx.Err(); err == nil {
				err = fmt.Errorf("%w: no answer within %v", ErrUnavailable, roundDuration(timeout))
			}
		}
	}
	return value, err
}

// Backoff paces the attempts of a waiter that gets no notices from the store, or that waits for a
// client of another kind. The pauses grow from Min to Max by doubling. Each is drawn at random from
// its upper half, so that waiters do not try at the same moments. None is below 1 ms.
type Backoff struct {
	// Min is the first pause; 0 means 2 ms.
	Min time.Duration

	// Max is the greatest pause, at least Min; 0 means 250 ms, or Min if that is more.
	Max time.Duration
}

// withDefaults returns b with its zero fields set to the defaults.
func (b Backoff) withDefaults() Backoff {
	if b.Min <= 0 {
		b.Min = 2 * time.Millisecond
	}
	if b.Max <= 0 {
		b.Max = 250 * time.Millisecond
	}
	b.Max = max(b.Max, b.Min)
	return b
}

// nthDelay returns the n-th pause, counting from 0.
func (b Backoff) nthDelay(n int) time.Duration {
	d := b.Min
	for ; n > 0 && d < b.Max/2; n-- {
		d *= 2
	}
	if n > 0 {
		d = b.Max
	}
	return max(jitter(d), time.Millisecond)
}

// jitter returns a random duration in the upper half of d.
func jitter(d time.Duration) time.Duration {
	return d - rand.N(d/2+1)
}
