package holdfast

import (
	"context"
	"errors"
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
// Callers of one Client are served first come, first served. The first of them has a place in the
// queue of the store, if Guarantees().Fair: it gets the lock in its turn, by a notice of the store.
// With any other store it tries again when the store signals a release, when the holder's time
// ends, or after a pause (see [Backoff]), whichever comes first.
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
// [ErrUnavailable]. On a store that is not Fair it may overtake a goroutine of this Client that
// waits, as it may overtake other Clients. If ctx is canceled while a request is in flight, TryAcquire
// returns when the request is answered, or after Config.RequestTimeout. It returns at most a second
// after the deadline of ctx.
func (c *Client) TryAcquire(ctx context.Context, name string, o *Options) (*Lock, error) {
	return c.acquire(ctx, name, o, true, false)
}

// An acquireOp is one call of Acquire or TryAcquire.
type acquireOp struct {
	retryWaiter // its head is nil while it is none
	name        string
	options     Options
	calledAt    time.Duration // when it began, if there are hooks
	startedAt   time.Duration // when it sent its first request or was enqueued, 0 before
	contended   bool          // the hooks were notified that it waits
	lastErr     error         // why the last attempt failed
}

// acquire is Acquire or TryAcquire. With answered the store is known to be up, so that an outage is
// waited out.
func (c *Client) acquire(ctx context.Context, name string, o *Options, singleAttempt, answered bool) (*Lock, error) {
	full, err := c.fullName(name)
	if err != nil {
		return nil, opError("acquire", name, err)
	}
	a := &acquireOp{
		retryWaiter: retryWaiter{c: c, ctx: ctx, fullName: full, singleAttempt: singleAttempt, hasAnswered: answered},
		name:        name, options: c.withDefaults(o),
	}
	if err := c.checkCall(ctx, &a.options); err != nil {
		return nil, opError("acquire", name, err)
	}
	a.start()
	if a.options.Wait > 0 && !singleAttempt {
		limited, cancel := context.WithTimeoutCause(a.ctx, a.options.Wait, waitOver(a.options.Wait))
		defer cancel()
		a.ctx = limited
	}
	return a.run()
}

// checkCall checks the arguments of a call.
func (c *Client) checkCall(ctx context.Context, o *Options) error {
	if err := o.validate(c.guarantees); err != nil {
		return err
	}
	if ctx == nil {
		return errNoContext
	}
	return ctx.Err()
}

// start notifies the hooks that the operation begins. run reports its end.
func (a *acquireOp) start() {
	op := "acquire"
	if a.singleAttempt {
		op = "try"
	}
	a.ctx = a.c.start(a.ctx, op, a.name, &a.options)
	if a.c.hooks.Event != nil {
		a.calledAt = a.c.clock.now()
	}
}

// run acquires the lock: from the store as the head of the queue of the name, by a lease that is
// passed on to it, or as a further handle on a reentrant lease. It starts anew if that lease ends
// before it has been joined. It reports the result to the hooks and the log.
func (a *acquireOp) run() (*Lock, error) {
	c := a.c
	err := c.beginCall()
	if err != nil {
		err = a.wrapError(err)
		a.emitResult(nil, err)
		return nil, err
	}
	defer c.activeCalls.Done()
	var lock *Lock
	for again := true; again; {
		again = false
		var w *waiter
		w, err = a.enqueue()
		switch {
		case err != nil:
		case w == nil:
			lock, err = a.acquireAsHead()
		case w.passed != nil:
			if err = a.ctx.Err(); err != nil {
				w.passed.first.lockReturned.Store(false)
				c.activeCalls.Go(func() { _ = w.passed.first.lock.Release() })
			} else {
				lock = w.passed.first.newLock()
			}
		default:
			lock, err = a.joinLease(w.join)
			again = err != nil
		}
	}
	if err != nil {
		err = a.wrapError(err)
	}
	if c.hooks.Event != nil {
		a.emitResult(lock, err)
	}
	if c.log != nil && err == nil {
		c.log.DebugContext(a.ctx, "lock acquired", "name", a.name, "token", lock.Token(), "waited", c.clock.now()-a.startedAt)
	}
	return lock, err
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
	case lock.handle == &lock.lease.first:
		lock.lease.emit(Event{Kind: EventAcquired, Took: took, TTL: lock.lease.options.TTL})
	default:
		c.emit(a.ctx, Event{Kind: EventJoined, Name: a.name, Token: lock.Token(), Took: took, TTL: lock.lease.options.TTL})
	}
}

// acquireAsHead makes attempts until the store grants the lock or the operation is over. The caller
// is a head of the queue. It stays one with the lock, and leaves the queue without.
func (a *acquireOp) acquireAsHead() (*Lock, error) {
	c := a.c
	l := a.newLease()
	if err := a.yield(); err != nil {
		return nil, a.leaveQueue(l, err)
	}
	req := driver.AcquireRequest{Queue: a.queueDuration()}
	for busy := 0; ; {
		if err := a.ctx.Err(); err != nil {
			return nil, a.leaveQueue(l, err)
		}
		res, sent, ttl, err := a.attempt(l, req)
		if a.startedAt == 0 {
			a.startedAt = sent
		}
		if err == nil && res.Granted {
			if err := a.ctx.Err(); err != nil { // The caller has given up.
				return nil, a.leaveQueue(l, err)
			}
			if err = l.activate(sent, ttl, &res); err == nil {
				return l.first.newLock(), nil
			}
			sent = c.clock.now() // The time of a suspend does not count for Config.MaxOutage.
		}
		// A request that may have been applied is not repeated: an owner is admitted at most once.
		req.Claim = c.guarantees.Fair && l.maybeGranted
		if err != nil {
			if a.ctx.Err() == nil { // the end of the caller's time is not a store error
				a.lastErr = storeError(a.ctx, err)
				c.recordAnswer(a.head, a.lastErr)
			}
			if err := a.waitOutage(sent, err); err != nil {
				return nil, a.leaveQueue(l, err)
			}
			continue
		}
		if req.Claim && !res.Queued {
			l = a.replaceLease(l)
			req.Claim = false
			continue // The answer to a claim does not end an outage. That to another request does.
		}
		a.noteAnswer()
		if res.Queued && res.Held.Waiting > 0 {
			res.Held.Waiting-- // the others
		}
		a.noteHolder(res.Held)
		if busy++; a.singleAttempt || busy == a.options.MaxAttempts {
			return nil, a.leaveQueue(l, a.lastErr)
		}
		a.reportContended()
		switch {
		case res.Queued && c.guarantees.Fair:
			l.confirmPlace(sent)
			req.Claim = true
		case !c.guarantees.Fair && req.Queue > 0 && res.Held.Limit != 0:
			l.maybeGranted = true // Until the release the store keeps others out.
		}
		if err := a.waitRetry(&res); err != nil {
			return nil, a.leaveQueue(l, err)
		}
	}
}

// newLease returns a lease for the attempts of the head, with a new owner.
func (a *acquireOp) newLease() *lease {
	c := a.c
	l := c.newLease(a.ctx, a.fullName, c.newOwner(), &a.options)
	l.head = a.head
	if l.options.limit() != 0 && !l.head.beside {
		c.mu.Lock()
		defer c.mu.Unlock()
		q := a.head.queue
		if q.owners == nil {
			q.owners = map[string]*queueHead{}
		}
		delete(q.owners, a.head.owner)
		a.head.owner = l.owner
		q.owners[l.owner] = a.head
	}
	return l
}

// attempt returns the grant of l by a notice, or else the answer to a request. It also returns when
// the request that confirms the grant was sent, and how long after that the store keeps the grant.
func (a *acquireOp) attempt(
	l *lease, req driver.AcquireRequest,
) (res driver.AcquireResult, sent, ttl time.Duration, err error) {
	if l.maybeGranted && a.c.guarantees.Fair {
		if res, sent = l.takeGrant(); res.Granted {
			return res, sent, placeTTL(l.options.TTL), nil
		}
	}
	if a.startedAt != 0 { // Else the operation has found no queue.
		req.Tokens = a.requestedTokens()
	}
	res, sent, err = l.sendAcquire(a.ctx, req)
	return res, sent, l.options.TTL, err
}

// leaveQueue ends the operation of the head, after attempts with l. It returns err, the reason. If
// the store may have granted the lock, l is released in the background, and stays the head until
// then.
func (a *acquireOp) leaveQueue(l *lease, err error) error {
	if !l.maybeGranted {
		l.unregister()
		return err
	}
	l.endPlace()
	if _, held := a.lastErr.(*HeldError); held || a.ctx.Err() != nil {
		a.c.recordAnswer(a.head, nil) // the release below will show the state
	}
	a.c.activeCalls.Go(func() {
		l.releaseUntilExpired(true)
		l.unregister()
	})
	return err
}

// sendAcquire makes one attempt to acquire the lease. It returns the result and the time of
// sending. Of the request, it sets what the lease has.
func (l *lease) sendAcquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, time.Duration, error) {
	c := l.c
	sent := c.clock.now()
	if !l.maybeGranted {
		l.confirmedAt = sent // If the answer is lost, a notice may still report a grant.
	}
	req.Name, req.Owner, req.Holder = l.fullName, l.owner, c.holder
	req.TTL, req.Metadata, req.Detached = l.options.TTL, l.options.Metadata, l.options.Detached
	req.Limit = l.options.limit()
	res, err := request(c, ctx, "acquire", min(c.requestTimeout, l.options.TTL), func(ctx context.Context) (driver.AcquireResult, error) {
		return c.store.Acquire(ctx, req)
	})
	switch {
	case res.Granted:
		l.maybeGranted = true
	case err != nil && !driver.IsNotApplied(err):
		l.maybeGranted = true
		raiseReading(&l.latestExpiry, c.clock.now()+l.options.TTL)
	}
	return res, sent, err
}

// noteHolder remembers held, the answer to a request, for the final error and for the callers that
// wait in the queue.
func (a *acquireOp) noteHolder(held driver.Record) {
	held.Name = a.name
	limit := a.head.queue.limit
	// Shared holds tolerate each other, and limited ones tolerate them: a waiter is in front then.
	tolerated := held.Limit == driver.Shared && limit != 0 || limit == driver.Shared && held.Limit != 0
	a.lastErr = &HeldError{
		Record: held, Self: !tolerated && a.c.holdsToken(a.fullName, held.Token),
		// A limited request may be refused because of other holds than the one in the answer.
		behindWaiter: limit == driver.Shared && held.Limit != 0,
	}
	a.c.recordAnswer(a.head, a.lastErr)
}

// reportContended notifies the hooks and the log, once, that the operation has to wait.
func (a *acquireOp) reportContended() {
	if a.contended {
		return
	}
	a.contended = true
	held, known := a.lastErr.(*HeldError)
	if !known { // It waits behind a goroutine that has no answer yet.
		held = &HeldError{Record: Record{Name: a.name, Holder: a.c.holder}, Self: true}
	}
	if a.c.log != nil {
		a.c.log.DebugContext(a.ctx, "waiting for lock", "name", a.name,
			"holder", held.Record.Holder, "since", held.Record.Since, "self", held.Self)
	}
	if a.c.hooks.Event != nil {
		by := held.Record
		a.c.emit(a.ctx, Event{Kind: EventWaiting, Name: a.name, By: &by})
	}
}

// wrapError returns the error that the caller gets for err.
func (a *acquireOp) wrapError(err error) error {
	if ctxErr := a.ctx.Err(); ctxErr != nil && errors.Is(err, ctxErr) {
		if a.lastErr == nil {
			a.lastErr = errNotAnswered
		}
		var waited time.Duration
		if a.startedAt != 0 {
			waited = a.c.clock.now() - a.startedAt
		}
		err = &waitError{waited: waited, ctxErr: ctxErr, cause: context.Cause(a.ctx), lastErr: a.lastErr}
	}
	return opError("acquire", a.name, err)
}

// joinLease adds a handle to a lease, unless it has ended.
func (a *acquireOp) joinLease(l *lease) (*Lock, error) {
	if err := l.checkHeld(); err != nil {
		return nil, err
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if !l.joinable() {
		return nil, ErrReleased
	}
	h := &handle{}
	h.lease, h.lock.handle, h.valuesCtx = l, h, a.ctx
	l.handles = append(l.handles, h)
	l.openHandles++
	return h.newLock(), nil
}
