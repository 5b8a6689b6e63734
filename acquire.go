package holdfast

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Acquire waits until it has the lock, or ctx ends, or Options.Wait or Options.MaxAttempts is used
// up. The ctx bounds the waiting only; [Lock.Context] ends when the hold does.
//
// When ctx ends, waiting between requests ends at once. If ctx is canceled while a request is in
// flight, Acquire returns when the request is answered, or after Config.RequestTimeout. It returns
// at most a second after the deadline of ctx.
//
// Callers of one Client that want the lock exclusively are served first come, first served, except
// that a Reentrant one joins a Reentrant hold at once, and one with MaxAttempts has no turn. The
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
// [ErrUnavailable]. The ctx ends it as it ends Acquire.
func (c *Client) TryAcquire(ctx context.Context, name string, o *Options) (*Lock, error) {
	return c.acquire(ctx, name, o, true, false)
}

// An acquireOp is one call of Acquire, TryAcquire or Adopt. Client.mu guards the fields from queue
// on.
type acquireOp struct {
	c       *Client
	ctx     context.Context
	name    string
	options Options
	once    bool          // a single attempt
	adopts  bool          // its lease is that of a ticket, and there is no other
	place   time.Duration // of its requests: 0 without a place
	began   time.Duration

	queue     *nameQueue
	lease     *lease        // of the present attempt; nil in the line
	confirmed bool          // an answer has confirmed the hold for its whole TTL
	heldUntil time.Duration // the end of the hold in the way, as the store has told it; 0 if unknown
	refusals  int           // how many attempts have found the lock held
	pauses    int
	answered  bool  // the store has answered before
	contended bool  // the hooks were notified that it waits
	lock      *Lock // what the caller gets
	failure   error // why it gets none
	wake      chan struct{}
}

// acquire is Acquire, or TryAcquire with once. With answered the store is known to be up, so that
// an outage is waited out.
func (c *Client) acquire(ctx context.Context, name string, o *Options, once, answered bool) (*Lock, error) {
	a := &acquireOp{c: c, name: name, options: c.withDefaults(o), once: once, answered: answered}
	full, err := c.beginNamed(ctx, name, &a.options)
	if err != nil {
		return nil, opError("acquire", name, err)
	}
	defer c.activeCalls.Done()
	op := "acquire"
	if once {
		op, a.options.Wait = "try", 0
	} else if a.options.MaxAttempts == 0 {
		a.place = min(a.options.TTL, maxPlaceTTL)
	}
	limited, cancel := withWait(c.start(ctx, op, name, &a.options), a.options.Wait)
	defer cancel()
	a.ctx, a.began = limited, c.clock.now()
	return a.report("acquire", a.run(full))
}

// withWait returns a context that also ends when Options.Wait is over, unless that is 0.
func withWait(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	if wait == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, wait, errors.New("the time to wait is over"+unitHint(wait)))
}

// run takes the operation through the queue of the name. In front, it makes attempts, each with a
// new owner, until one of them has the lock.
func (a *acquireOp) run(full string) error {
	c := a.c
	c.mu.Lock()
	if err := a.enter(full); err != nil {
		c.mu.Unlock()
		return err
	}
	for sent := a.began; ; sent = c.clock.now() {
		l := a.lease
		if l == nil || a.ctx.Err() != nil || c.closed {
			c.mu.Unlock()
		} else {
			l.tokens.count = a.tokensToRequest()
			req := driver.Request{
				Name: full, Owner: l.owner, Holder: c.holder, TTL: a.options.TTL, Place: a.place, Limit: a.options.limit(),
				Tokens: l.tokens.count, Detached: a.options.Detached, Metadata: a.options.Metadata,
			}
			l.state, l.busy, l.storeEnd = requesting, true, sent+a.options.TTL
			l.deadline.Store(int64(sent + driver.Validity(a.place))) // A notice may come before the answer.
			c.mu.Unlock()
			res, err := request(c, a.ctx, "acquire", min(c.requestTimeout, a.options.TTL), func(ctx context.Context) (driver.Result, error) {
				return c.store.Acquire(ctx, req)
			})
			a.noteResult(l, sent, res, err)
		}
		if err := a.await(); err != nil || a.lock != nil {
			return err
		}
		c.mu.Lock()
	}
}

// noteResult records the answer to the request of an attempt that was sent at sent. A notice may
// have made its lease a hold already, and another call may have ended that.
func (a *acquireOp) noteResult(l *lease, sent time.Duration, res driver.Result, err error) {
	c := a.c
	c.mu.Lock()
	defer c.mu.Unlock()
	l.busy = false
	c.changed.Broadcast()
	now := c.clock.now()
	switch {
	case a.lease != l:
		return
	case err != nil:
		pause := a.noteFailure(now, sent, err)
		if driver.IsNotApplied(err) {
			a.restart(l.state != requesting, now+pause)
			return
		}
		l.storeEnd = now + a.options.TTL
		if l.due = now + pause; l.state == held || l.look == noticed {
			l.due = now
		}
		l.look = failed
		c.reschedule(l)
	case res.Granted:
		if !l.noteEntry(now, sent, a.options.TTL, driver.Entry{State: driver.Held, Token: res.Token}) {
			a.noteFailure(now, now, errAnsweredLate)
		}
	case res.Waiting:
		a.noteHolder(now, res.Held)
		l.noteEntry(now, sent, a.place, driver.Entry{State: driver.Waiting, Token: res.Token})
	default:
		a.noteAnswered(now)
		a.noteHolder(now, res.Held)
		pause := c.backoff.nthDelay(a.pauses)
		if a.pauses++; res.Held.Remaining > 0 {
			pause = min(pause, res.Held.Remaining+time.Millisecond+jitter(4*time.Millisecond))
		}
		a.restart(l.state != requesting, now+pause)
		if a.refusals++; a.once || a.refusals == a.options.MaxAttempts {
			a.failure = a.queue.known
		}
	}
}

// await waits until the operation has a Lock or is over, or the next attempt is to be made. The
// scheduler, the notices of the store, and the other operations of the queue change what it finds.
func (a *acquireOp) await() error {
	c := a.c
	for {
		c.mu.Lock()
		l, over := a.lease, a.ctx.Err()
		var due <-chan time.Time
		switch {
		case a.lock != nil: // also if ctx has just ended
			c.mu.Unlock()
			return nil
		case over != nil:
		case a.failure != nil:
			over = a.failure
		case c.closed:
			over = ErrClosed
		case l == nil: // in the line
		case l.state == held && (a.confirmed || !a.options.NoRenew && !a.options.Detached):
			a.take(l)
			c.mu.Unlock()
			return nil
		case l.state == unsent:
			if a.join() { // a hold that this Client has got since
				a.lease = nil
				c.leave(l)
				c.mu.Unlock()
				return nil
			}
			pause := l.due - c.clock.now()
			if pause <= 0 {
				c.mu.Unlock()
				return nil
			}
			due = time.After(pause)
		}
		if over != nil {
			err := a.giveUp(over)
			c.mu.Unlock()
			return err
		}
		known := a.lastKnown()
		by, isHeld := known.(*HeldError)
		if !a.contended && !a.once && !a.adopts && (l == nil || isHeld) {
			a.contended = true
			c.mu.Unlock()
			if !isHeld { // It waits behind a goroutine that has no answer yet.
				by = &HeldError{Record: Record{Name: a.name, Holder: c.holder}}
			}
			c.emit(a.ctx, Event{Kind: EventWaiting, Name: a.name, By: &by.Record})
			continue
		}
		if a.wake == nil {
			a.wake = make(chan struct{}, 1)
		}
		c.mu.Unlock()
		select {
		case <-a.wake:
		case <-due:
		case <-a.ctx.Done():
		case <-c.closing:
		}
	}
}

// take makes the held lease that of the caller. The caller of take holds c.mu.
func (a *acquireOp) take(l *lease) {
	l.op, a.lock = nil, &l.first
	q := a.queue
	if q.head == nil && a.options.limit() == 0 { // It has held without a place.
		q.replace(l, nil)
		q.head = l
	}
	if q.head == l {
		q.turnEnd = l.since + a.c.localTurn
	}
	if a.options.Reentrant {
		for _, other := range slices.Clone(q.line) {
			if other.join() {
				other.signal()
			}
		}
	}
}

// restart ends the attempt, whose lease the store does not have, or has too late: then it is
// released. The next one, by a new owner, is sent at due. A ticket has no other owner. The caller
// holds c.mu.
func (a *acquireOp) restart(release bool, due time.Duration) {
	a.signal()
	if a.adopts {
		a.failure = errTicketExpired
		return
	}
	old := a.lease
	a.queue.replace(old, a.c.newLease(a, old.name))
	a.lease.due = due
	old.abandon(release)
}

// giveUp ends the operation and returns the error for its caller. If the store may have an entry of
// its lease, that is released in the background, and the next caller of this Client goes on after
// it. The caller holds c.mu.
func (a *acquireOp) giveUp(err error) error {
	c, l := a.c, a.lease
	if cut := a.ctx.Err(); cut != nil {
		known := a.failure
		if known == nil {
			known = a.lastKnown()
		}
		err = &waitError{waited: c.clock.now() - a.began, ctxErr: cut, cause: context.Cause(a.ctx), lastErr: known}
	}
	if l == nil {
		a.leaveLine()
		return err
	}
	stays := l.state == unsent || a.adopts // nothing is released
	if l.abandon(!stays); stays {
		c.leave(l)
	}
	return err
}

// signal wakes the operation. The caller holds c.mu.
func (a *acquireOp) signal() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// lastKnown returns what was last known of the name: a HeldError, or why that is not known. That it
// is held is believed for a TTL after the answer that has shown it. The caller holds c.mu.
func (a *acquireOp) lastKnown() error {
	q, now := a.queue, a.c.clock.now()
	_, isHeld := q.known.(*HeldError)
	switch head := q.head; {
	case head != nil && head.op == nil && a.options.limit() == 0 && now < time.Duration(head.deadline.Load()):
		return &HeldError{Record: head.record(), Self: true}
	case q.known != nil && (!isHeld || now < q.answeredAt+a.options.TTL):
		return q.known
	}
	return errNotAnswered
}

// noteAnswered records that the store has answered. The caller holds c.mu.
func (a *acquireOp) noteAnswered(now time.Duration) {
	a.answered, a.queue.failing, a.queue.answeredAt = true, 0, now
}

// noteHolder records the hold in the way. The caller holds c.mu.
func (a *acquireOp) noteHolder(now time.Duration, rec driver.Record) {
	self := false
	for l := range a.queue.leases {
		self = self || l.state == held && l.tokens.has(rec.Token)
	}
	rec.Name, a.heldUntil = a.name, 0
	if rec.Remaining > 0 {
		a.heldUntil = now + rec.Remaining
	}
	a.queue.known = &HeldError{Record: rec, Self: self}
}

// soon is how long a single attempt waits for a store that announces when it can answer, such as a
// quorum whose nodes were divided among contenders.
const soon = 250 * time.Millisecond

// noteFailure records that a request that was sent at sent has failed, and returns the pause until
// the next one. It sets failure if there should be none: the store will never do it, has refused
// the very first request, or has not answered for Config.MaxOutage. A single attempt has one second
// request, to learn the outcome, and tries again soon for a request timeout at most. If the store
// has announced that it can serve later, the time counts from that moment, and a deadline of ctx
// alone bounds it. The head notes an outage for those in line, too. The caller holds c.mu.
func (a *acquireOp) noteFailure(now, sent time.Duration, err error) time.Duration {
	c, q := a.c, a.queue
	if a.ctx.Err() != nil {
		return 0 // The end of the caller's time shows nothing of the store.
	}
	pause, first := c.backoff.nthDelay(a.pauses), q.failing == 0
	if a.pauses++; a.once {
		pause = min(pause, soon)
	} else if a.place > 0 { // It must not cost the place.
		pause = min(pause, soon, a.place/3)
	}
	if first {
		q.failing = sent
	}
	var later *driver.RetryError
	announced := errors.As(err, &later) &&
		(!a.once || 0 < later.After && later.After <= soon && now-a.began < c.requestTimeout)
	if announced {
		if first || !a.answered {
			a.answered, q.failing = true, max(q.failing, now+later.After)
		}
		if later.After > 0 {
			pause = min(later.After, time.Second) + jitter(4*time.Millisecond)
		}
	}
	unavailable := storeError(context.Background(), err) // ctx may have ended just now
	if _, isHeld := q.known.(*HeldError); !isHeld || !announced {
		q.known = unavailable
	}
	callers := []*acquireOp{a}
	if q.head == a.lease {
		callers = append(callers, q.line...)
	}
	for _, b := range callers {
		_, bounded := b.ctx.Deadline()
		if now-max(q.failing, b.began) >= c.outage && !(announced && bounded) {
			b.failure = unavailable
			b.signal()
		}
	}
	// After its deadline, NotApplied means that the request was never sent: that is no refusal.
	refused := driver.IsNotApplied(err) && !errors.Is(err, context.DeadlineExceeded)
	switch {
	case driver.Permanent(err), a.once && !announced && (refused || a.pauses > 1),
		refused && a.pauses == 1 && !a.answered && q.answeredAt == 0:
		a.failure = unavailable
	case a.failure == nil && first && (!announced || later.After == 0 || later.After > soon):
		// A log handler may be slow, or call the Client.
		c.activeCalls.Go(func() { c.logWarning(a.ctx, "store unavailable, trying again", a.name, err) })
	}
	return pause
}

// report tells the hooks of the end of the operation, and returns its result.
func (a *acquireOp) report(op string, err error) (*Lock, error) {
	c := a.c
	if err != nil {
		err = opError(op, a.name, err)
	}
	if !c.watched() {
		return a.lock, err
	}
	e := Event{Kind: EventAcquired, Name: a.name, Took: c.clock.now() - a.began, Err: err}
	if a.contended {
		c.emit(a.ctx, Event{Kind: EventWaited, Name: a.name, Took: e.Took, Err: err})
	}
	switch {
	case errors.Is(err, ErrHeld):
		e.Kind = EventRefused
	case err != nil:
		e.Kind = EventFailed
	default:
		e.Token, e.TTL = a.lock.Token(), a.lock.lease.options.TTL
		if a.lock != &a.lock.lease.first {
			e.Kind = EventJoined
		}
	}
	c.emit(a.ctx, e)
	return a.lock, err
}

var (
	// errNotAnswered is the error while nothing is known of a name.
	errNotAnswered = fmt.Errorf("%w: it has not answered yet", ErrUnavailable)

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
		defer func() { c.emit(ctx, Event{Kind: EventRequest, Op: op, Took: c.clock.now() - began, Err: err}) }()
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
	values := ctx
	if ctx.Done() != nil {
		values = context.WithoutCancel(ctx)
	}
	limited, cancel := context.WithDeadline(values, deadline)
	defer cancel()
	value, err = call(limited)
	if err != nil {
		expired := limited.Err() != nil
		if byCaller && expired {
			<-ctx.Done() // Its timer may fire a little later than the deadline.
		}
		if err == context.DeadlineExceeded || expired && !driver.IsNotApplied(err) {
			if err = ctx.Err(); err == nil {
				err = fmt.Errorf("%w: no answer within %v", ErrUnavailable, timeout)
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
