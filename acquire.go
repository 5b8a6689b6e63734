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
// Callers of one Client are served first come, first served. The first caller in the queue tries
// again when the store signals a release, when the holder's time ends, or after a pause (see
// [Backoff]), whichever comes first.
//
// Errors: [ErrHeld] with a [HeldError] if the lock was held throughout, joined with ctx.Err() (or
// context.DeadlineExceeded, for Wait) where a wait was cut short; [ErrUnavailable], [ErrInvalid],
// [ErrUnsupported], [ErrCorrupt], [ErrClosed]. After an error nothing is held: if the store may
// have granted the lock all the same, the lock is released in the background.
func (c *Client) Acquire(ctx context.Context, name string, o *Options) (*Lock, error) {
	return c.acquire(ctx, name, o, false)
}

// TryAcquire makes one attempt and does not wait for the lock. If the lock is held, by another
// goroutine of this Client too, the error is a [HeldError]; if that is not known, it matches
// [ErrUnavailable]. If another goroutine of this Client has a request for the lock in flight,
// TryAcquire waits for its result. TryAcquire does not overtake goroutines that wait. If ctx
// is canceled while a request is in flight, TryAcquire returns when the request is answered, or
// after Config.RequestTimeout. It returns at most a second after the deadline of ctx.
func (c *Client) TryAcquire(ctx context.Context, name string, o *Options) (*Lock, error) {
	return c.acquire(ctx, name, o, true)
}

// errDiscarded is the end reason of a lease that was never returned to a caller.
var errDiscarded = errors.New("acquisition given up")

// An acquireOp is one call of Acquire or TryAcquire.
type acquireOp struct {
	c             *Client
	ctx           context.Context // bounds the wait, and has the values of the caller's context
	name          string
	fullName      string
	options       Options
	singleAttempt bool
	startedAt     time.Duration // when it sent its first request or was enqueued, 0 before
	contended     bool          // the hooks were notified that it waits
	lastErr       error         // why the last attempt failed

	hasAnswered bool // the store has answered this caller before
}

func (c *Client) acquire(ctx context.Context, name string, o *Options, singleAttempt bool) (*Lock, error) {
	full, err := c.fullName(name)
	if err != nil {
		return nil, opError("acquire", name, err)
	}
	a := &acquireOp{
		c: c, ctx: ctx, name: name, fullName: full,
		options: o.withDefaults(&c.options), singleAttempt: singleAttempt,
	}
	if err := c.checkCall(ctx, &a.options); err != nil {
		return nil, opError("acquire", name, err)
	}
	if a.options.Wait > 0 && !singleAttempt {
		limited, cancel := context.WithTimeoutCause(ctx, a.options.Wait, errWaitOver)
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

// run acquires the lock, and reports the result to the hooks and the log.
func (a *acquireOp) run() (*Lock, error) {
	a.c.mu.Lock()
	if err := a.c.registerCall(); err != nil {
		a.c.mu.Unlock()
		return nil, a.wrapError(err)
	}
	defer a.c.activeCalls.Done()
	lock, err := a.acquire()
	a.reportResult(lock, err)
	return lock, err
}

// acquire waits in the queue of the name. It returns a lease that was passed on to it, joins a
// reentrant lease, or acquires the lock as the head. If the lease ends before it has been joined,
// acquire starts again. The caller holds c.mu, which acquire unlocks.
func (a *acquireOp) acquire() (*Lock, error) {
	for ; ; a.c.mu.Lock() {
		w, err := a.enqueue()
		switch {
		case err != nil:
			return nil, a.wrapError(err)
		case w != nil && w.passed != nil:
			if err := a.ctxErr(); err != nil {
				a.c.activeCalls.Go(w.passed.giveBack)
				return nil, a.wrapError(err)
			}
			return w.passed.firstLock(), nil
		case w == nil || w.join == nil:
			return a.acquireAsHead()
		}
		lock, err := a.joinLease(w.join)
		if err == nil {
			return lock, nil
		}
		if w.join.endReason.Load() == nil {
			return nil, a.wrapError(err)
		}
	}
}

// acquireAsHead attempts to acquire the lock until the store grants it or the operation is over.
// The caller is the head of the queue; acquireAsHead removes it if it fails.
func (a *acquireOp) acquireAsHead() (*Lock, error) {
	pair := a.newLease(a.c.owners.nextOwner())
	err := a.attemptUntilGranted(pair)
	if err == nil {
		return pair.firstLock(), nil
	}
	pair.lease.discarded.Store(true)
	pair.lease.endReason.Store(&errDiscarded)
	err = a.wrapError(err)
	if !pair.lease.maybeGranted {
		a.c.dequeue(a.fullName)
		return nil, err
	}
	c, full := a.c, a.fullName
	if _, held := a.lastErr.(*HeldError); held || a.ctx.Err() != nil {
		c.recordAnswer(full, nil, 0) // the release below will show the state
	}
	c.activeCalls.Go(func() {
		pair.lease.releaseUntilExpired(true)
		c.dequeue(full)
	})
	return nil, err
}

// attemptUntilGranted makes attempts until one succeeds, and then activates the lease of pair.
func (a *acquireOp) attemptUntilGranted(pair *leaseAndHandle) error {
	w := retryWaiter{c: a.c, ctx: a.ctx, fullName: a.fullName, isHead: true}
	defer w.unsubscribe()
	budget := outageBudget{c: a.c, name: a.name, singleAttempt: a.singleAttempt, hasAnswered: a.hasAnswered}
	if err := a.yield(&w); err != nil {
		return err
	}
	for busy := 0; ; {
		if err := a.ctxErr(); err != nil {
			return err
		}
		res, sent, err := a.attempt(&pair.lease)
		if err == nil && res.Granted {
			if err := a.ctxErr(); err != nil {
				return err // the caller no longer wants the lock
			}
			if err = pair.lease.activate(sent, &res); err == nil {
				return nil
			}
			sent = a.c.clock.now() // a suspend meanwhile is not a store error
		}
		if err != nil {
			a.noteStoreError(err, sent)
			after, err := budget.retryDelay(a.ctx, sent, err)
			if err != nil {
				return err
			}
			if err := w.waitOutage(after); err != nil {
				return err
			}
			continue
		}
		budget.noteAnswer()
		a.noteHolder(res.Held, sent)
		if !w.rechecked { // an attempt that another goroutine requested does not count
			busy++
		}
		if a.singleAttempt || busy == a.options.MaxAttempts {
			return a.lastErr
		}
		a.reportContended()
		if w.subscribe() {
			continue // the release may have come before the watch
		}
		if err := w.waitRetry(res.Held.Remaining); err != nil {
			return err
		}
	}
}

// attempt sends one request. It returns the result and the time of sending.
func (a *acquireOp) attempt(l *lease) (driver.AcquireResult, time.Duration, error) {
	c := a.c
	tokens := a.requestedTokens()
	sent := c.clock.now()
	if a.startedAt == 0 {
		a.startedAt = sent
	}
	res, err := request(c, a.ctx, min(c.requestTimeout, l.ttl), func(ctx context.Context) (driver.AcquireResult, error) {
		return c.store.Acquire(ctx, driver.AcquireRequest{
			Name:     l.fullName,
			Owner:    l.owner,
			Holder:   c.holder,
			TTL:      l.ttl,
			Tokens:   tokens,
			Metadata: l.metadata,
			Detached: l.detached,
		})
	})
	switch {
	case res.Granted:
		l.maybeGranted = true
	case err != nil && !driver.IsNotApplied(err):
		l.maybeGranted = true
		l.raiseLatestExpiry(l.ttl)
	}
	return res, sent, err
}

// ctxErr returns the error of the context. If it is not nil, and the store has not answered, ctxErr
// remembers that for the final error.
func (a *acquireOp) ctxErr() error {
	err := a.ctx.Err()
	if err != nil && a.lastErr == nil {
		a.lastErr = errNotAnswered
	}
	return err
}

// noteHolder remembers held, the result of a request sent at sent, for the final error and for
// the callers that wait in the queue.
func (a *acquireOp) noteHolder(held driver.Record, sent time.Duration) {
	held.Name = a.name
	a.lastErr = &HeldError{Record: held, Self: a.c.hasAdopted(a.fullName, held.Token)}
	a.c.recordAnswer(a.fullName, a.lastErr, sent)
	a.warnAdopted(held)
}

// noteStoreError remembers the error of a request sent at sent for the final error. The caller's
// own timeout is not a store error, unless the store has never answered.
func (a *acquireOp) noteStoreError(err error, sent time.Duration) {
	switch {
	case a.ctx.Err() == nil:
		a.lastErr = storeError(a.ctx, err)
		a.c.recordAnswer(a.fullName, a.lastErr, sent)
	case a.lastErr == nil:
		a.lastErr = errNotAnswered
	}
}

// reportContended notifies the hooks, once, that the operation has to wait.
func (a *acquireOp) reportContended() {
	held, ok := a.lastErr.(*HeldError)
	if !ok || a.contended {
		return
	}
	a.contended = true
	a.logWaiting(held)
	if hook := a.c.hooks.Contended; hook != nil {
		hook(a.name, held.Record)
	}
}

// reportResult notifies the hooks and the log of the result.
func (a *acquireOp) reportResult(lock *Lock, err error) {
	c := a.c
	if c.log == nil && c.hooks.Waited == nil && c.hooks.Acquired == nil {
		return
	}
	took := c.clock.now() - a.startedAt
	if a.contended && c.hooks.Waited != nil {
		c.hooks.Waited(a.name, took, err)
	}
	if err != nil {
		return
	}
	if c.hooks.Acquired != nil {
		c.hooks.Acquired(a.name, lock.Token(), took)
	}
	if c.log != nil {
		c.log.DebugContext(a.ctx, "lock acquired", "name", a.name, "token", lock.Token(), "waited", took)
	}
}

// wrapError returns the error that the caller gets for err.
func (a *acquireOp) wrapError(err error) error {
	if ctxErr := a.ctx.Err(); ctxErr != nil && errors.Is(err, ctxErr) {
		err = &waitError{
			waited: a.c.clock.now() - a.startedAt,
			ctxErr: ctxErr, cause: context.Cause(a.ctx), lastErr: a.lastErr,
		}
	}
	return opError("acquire", a.name, err)
}

// An outageBudget decides how long a caller keeps trying while the store fails.
type outageBudget struct {
	c              *Client
	name           string
	singleAttempt  bool          // the caller does not wait; it only needs to learn the outcome
	hasAnswered    bool          // the store has answered before
	failing        bool          // it has not answered since
	retryAnnounced bool          // it has announced since then that it can serve later
	failingSince   time.Duration // when the failing began, or will end as announced
}

// noteAnswer records that the store has answered.
func (b *outageBudget) noteAnswer() { b.hasAnswered, b.failing, b.retryAnnounced = true, false, false }

// retryDelay returns the delay after which the caller tries again after err, which is the result
// of a request sent at sent; or the error to return. The budget is Config.MaxOutage, or two request
// timeouts for a single attempt. If the store has announced that it can serve later, the budget
// ends Config.MaxOutage after that moment; if ctx has a deadline, the budget is then bounded by ctx
// alone.
func (b *outageBudget) retryDelay(ctx context.Context, sent time.Duration, err error) (time.Duration, error) {
	first := !b.failing
	if first {
		b.failing, b.failingSince = true, sent
	}
	if ctxErr := ctx.Err(); ctxErr != nil {
		return 0, ctxErr
	}
	now := b.c.clock.now()
	limit := b.c.outage
	if b.singleAttempt {
		limit = 2 * b.c.requestTimeout // time for a second request, to learn the outcome
	}
	var after time.Duration
	bounded := false // the caller bounds the wait for a server that has announced a retry
	if later := (*driver.RetryError)(nil); errors.As(err, &later) && !b.singleAttempt {
		after = later.After
		_, bounded = ctx.Deadline()
		if !b.retryAnnounced {
			b.hasAnswered, b.retryAnnounced, b.failingSince = true, true, max(b.failingSince, now+after)
		}
	}
	// A request that was not sent in time, as behind one that hangs, has not been refused.
	refused := driver.IsNotApplied(err) && !errors.Is(err, context.DeadlineExceeded) && (b.singleAttempt || !b.hasAnswered)
	if driver.Permanent(err) || refused || !bounded && now-b.failingSince >= limit {
		return 0, storeError(ctx, err)
	}
	if first {
		b.c.logWarning(ctx, "store unavailable, trying again", b.name, err)
	}
	return after, nil
}
