package holdfast

import (
	"cmp"
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
	return (&acquireOp{c: c, name: name, options: c.withDefaults(o)}).do(ctx)
}

// TryAcquire makes one attempt and does not wait for the lock. If the lock is held, by another
// goroutine of this Client too, the error is a [HeldError]; if that is not known, it matches
// [ErrUnavailable]. The ctx ends it as it ends Acquire.
func (c *Client) TryAcquire(ctx context.Context, name string, o *Options) (*Lock, error) {
	return (&acquireOp{c: c, name: name, options: c.withDefaults(o), try: true}).do(ctx)
}

// An acquireOp is one call of Acquire, TryAcquire or Adopt. Client.mu guards the fields from queue
// on.
type acquireOp struct {
	c       *Client
	ctx     context.Context
	name    string
	options Options
	try     bool          // a single attempt
	ticket  *ticketFields // of an Adopt: its lease is that of the ticket, and there is no other
	place   time.Duration // of its requests: 0 without a place
	began   time.Duration

	queue     *nameQueue
	lease     *lease        // of the present attempt; nil in the line
	heldUntil time.Duration // soon after the end of the hold in the way, as the store has told it; or 0
	refusals  int           // how many attempts have found the lock held
	pauses    int
	answered  bool  // the store is known to be up, so that an outage is waited out
	contended bool  // the hooks were notified that it waits
	lock      *Lock // what the caller gets
	failure   error // why it gets none
	wake      chan struct{}
}

// do checks the arguments, runs the operation, and tells the hooks of its begin and of its end.
func (a *acquireOp) do(ctx context.Context) (*Lock, error) {
	c, o := a.c, &a.options
	op, start := "acquire", "acquire"
	switch {
	case a.ticket != nil:
		op, start = "adopt", "adopt"
	case a.try:
		start, o.Wait = "try", 0
	case o.MaxAttempts == 0:
		a.place = min(o.TTL, maxPlaceTTL)
		if can := &c.guarantees; can.Queue && can.Crash == driver.FateFreed && !can.InProcess {
			a.place = min(o.TTL, maxFreedPlace)
		}
	}
	err := c.begin(ctx, o, a.name)
	if err != nil {
		return nil, opError(op, a.name, err)
	}
	defer c.activeCalls.Done()
	if a.ctx = ctx; c.config.Hooks.Start != nil {
		a.ctx = c.config.Hooks.Start(ctx, Start{Op: start, Store: c.guarantees.Store, Name: a.name, Holder: c.config.Holder, TTL: o.TTL})
	}
	if o.Wait > 0 {
		limited, cancel := context.WithTimeoutCause(a.ctx, o.Wait, errWaited(o.Wait))
		defer cancel()
		a.ctx = limited
	}
	a.began = c.clock.now()
	if err = a.run(); err != nil {
		err = opError(op, a.name, err)
	}
	if !c.watched {
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

// run takes the operation through the queue of the name until it has a Lock or an error. It holds
// c.mu, which ask and wait let go. Meanwhile a notice may make the lease a hold, and an operation
// in the line may get a lease or a Lock from the one before it. Nothing else changes what run has
// read.
func (a *acquireOp) run() error {
	c, o := a.c, &a.options
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := a.enter(); err != nil {
		return err
	}
	now := a.began
	for a.lock == nil {
		l := a.lease
		switch {
		case a.ctx.Err() != nil || a.failure != nil || c.closed:
			return a.giveUp()
		case l == nil: // in the line
			now = a.wait(0)
		case l.state == held && now >= time.Duration(l.deadline.Load()):
			a.restart(now, false)
		case l.state == held && (l.confirmed || !o.NoRenew && !o.Detached):
			a.take(l, now)
		case o.Reentrant && l.state == unsent && a.join(): // a hold that this Client has got since
			l.abandon()
		case l.due > now:
			now = a.wait(l.due - now)
		default:
			now = a.ask(l, now)
		}
	}
	return nil
}

// ask makes the next request for the lease of the attempt, at the moment sent: an Acquire, and then
// a Renew each time, which shows what has become of it. A request is for the place until the lease
// is held, and for the TTL from then on.
func (a *acquireOp) ask(l *lease, sent time.Duration) (now time.Duration) {
	c, o, before := a.c, &a.options, l.state
	asked, timeout := o.TTL, min(c.config.RequestTimeout, o.TTL)
	if before != held && a.place > 0 {
		asked = a.place
	}
	var entry driver.Entry
	var err error
	l.look = noLook
	if before == unsent {
		if l.tokens.count = 1; len(a.queue.line) > 0 {
			l.tokens.count = a.tokensForLine()
		}
		req := driver.Request{
			Name: l.name, Owner: l.owner, Holder: c.config.Holder, TTL: o.TTL, Place: a.place, Limit: o.limit(),
			Tokens: l.tokens.count, Detached: o.Detached, Metadata: o.Metadata,
		}
		l.state = requesting
		l.deadline.Store(int64(sent + driver.Validity(a.place))) // A notice may come before the answer.
		c.mu.Unlock()
		var res driver.Result
		res, err = request(c, a.ctx, "acquire", timeout, func(ctx context.Context) (driver.Result, error) {
			return c.store.Acquire(ctx, req)
		})
		c.mu.Lock()
		switch entry.Token = res.Token; {
		case err != nil:
		case res.Granted:
			entry.State, asked = driver.Held, o.TTL
		default:
			a.noteHolder(res.Held)
			if entry.State = driver.Lost; res.Waiting {
				entry.State = driver.Waiting
			}
		}
	} else {
		bound := asked / 4 // There is time for other attempts if this one fails.
		if before == held {
			bound = (time.Duration(l.deadline.Load()) - sent) / 2
		}
		reqs := []driver.RenewRequest{{Name: l.name, Owner: l.owner, Token: l.tokens.first, TTL: asked}}
		c.mu.Unlock()
		var entries []driver.Entry
		entries, err = request(c, a.ctx, "renew", min(timeout, max(bound, soon)), func(ctx context.Context) ([]driver.Entry, error) {
			return c.store.Renew(ctx, reqs)
		})
		c.mu.Lock()
		if len(entries) > 0 {
			entry = entries[0]
		}
	}
	now = c.clock.now()
	a.answer(l, before, sent, now, asked, entry, err)
	return now
}

// answer records the answer to a request for the time asked, which was sent when the lease was in
// the state before, and sets when to ask again. A notice may have made it a hold meanwhile. The
// caller holds c.mu.
func (a *acquireOp) answer(
	l *lease, before leaseState, sent, now, asked time.Duration, entry driver.Entry, err error,
) {
	first := before == unsent
	switch {
	case entry.State == driver.Unknown:
		l.due = now + a.noteFailure(now, sent, cmp.Or(err, errNotAnswered))
		if first && driver.IsNotApplied(err) {
			a.restart(l.due, true)
			return
		}
		if first && (l.state == held || l.look == noticed) {
			l.due = now
		}
		l.look = failed
	case first && entry.State == driver.Lost: // It is held, and gives no place.
		pause := a.c.config.Backoff.nthDelay(a.pauses)
		if a.pauses++; a.heldUntil > now {
			pause = min(pause, a.heldUntil-now)
		}
		if l.look == noticed {
			pause = 0
		}
		a.restart(now+pause, true)
		if a.refusals++; a.try || a.refusals == a.options.MaxAttempts {
			a.failure = a.queue.known
		}
	case entry.State == driver.Lost, entry.Token != 0 && l.tokens.first != 0 && entry.Token != l.tokens.first,
		entry.State == driver.Waiting && (before == held || a.ticket != nil): // The store has forgotten the grant.
		// It proves nothing about an outage, in which requests for an entry may get lost.
		a.restart(now, l.state == waiting && entry.State == driver.Lost)
	default:
		a.answered, a.queue.failing, a.queue.answeredAt = true, 0, now
		l.noteAnswer(sent, asked, entry)
		switch {
		case entry.State == driver.Held && l.state < held:
			l.state, l.since = held, now
			if first && now >= time.Duration(l.deadline.Load()) {
				a.noteFailure(now, now, errAnsweredLate)
			}
		case l.state < held:
			if l.state = waiting; a.heldUntil > now {
				l.due = min(l.due, a.heldUntil)
			}
		}
		if l.look == noticed || l.state == held && !l.confirmed {
			l.due = now
		}
	}
}

// wait returns when another goroutine has woken the operation, when its time or the Client has
// ended, or after pause unless that is 0. Before it waits for a holder, it tells the hooks.
func (a *acquireOp) wait(pause time.Duration) (now time.Duration) {
	c := a.c
	if !a.contended && !a.try && a.ticket == nil {
		if by, isHeld := a.lastKnown().(*HeldError); isHeld || a.lease == nil {
			a.contended = true
			c.mu.Unlock()
			if !isHeld { // It waits behind a goroutine that has no answer yet.
				by = &HeldError{Record: Record{Name: a.name, Holder: c.config.Holder}}
			}
			c.emit(a.ctx, Event{Kind: EventWaiting, Name: a.name, By: &by.Record})
			c.mu.Lock()
			return c.clock.now()
		}
	}
	if a.wake == nil {
		a.wake = make(chan struct{}, 1)
	}
	c.mu.Unlock()
	var over <-chan time.Time
	if pause > 0 {
		over = time.After(pause)
	}
	select {
	case <-a.wake:
	case <-over:
	case <-a.ctx.Done():
	case <-c.closing:
	}
	c.mu.Lock()
	return c.clock.now()
}

// take makes the held lease that of the caller, and has the scheduler renew it. One that was
// granted by a notice has the time of its place, and is renewed soon. The caller of take holds
// c.mu.
func (a *acquireOp) take(l *lease, now time.Duration) {
	l.op, l.tokens.own, a.lock = nil, l.tokens.first, &l.first
	if !l.confirmed {
		left := time.Duration(l.deadline.Load()) - now
		l.due = min(l.due, now+min(max(a.c.config.LocalTurn, shortHold), left/3))
	}
	l.lookAt(now, l.due)
	q := a.queue
	if q.head == nil && a.options.limit() == 0 { // It has held without a place.
		q.head = l
	}
	if q.head == l {
		q.turnEnd = l.since + a.c.config.LocalTurn
	}
	if a.options.Reentrant {
		for _, other := range slices.Clone(q.line) {
			if other.options.Reentrant && other.join() {
				other.signal()
			}
		}
	}
}

// restart replaces the lease of the attempt by one of a new owner, which is sent at due. The old
// lease is released, unless it is absent: the store has no entry of it. A ticket has no other
// owner. The caller holds c.mu.
func (a *acquireOp) restart(due time.Duration, absent bool) {
	if a.ticket != nil {
		a.failure = errTicketExpired
		return
	}
	old := a.lease
	if absent && old.state < held {
		old.state = unsent
	}
	a.queue.replace(old, a.c.newLease(a, old.name))
	a.lease.due = due
	old.abandon()
}

// giveUp ends the operation and returns the error for its caller. If the store may have an entry of
// its lease, that is released in the background. The hold of a ticket goes on. The caller holds
// c.mu.
func (a *acquireOp) giveUp() error {
	c, err := a.c, a.failure
	switch cut := a.ctx.Err(); {
	case cut != nil:
		if err == nil {
			err = a.lastKnown()
		}
		err = &waitError{waited: c.clock.now() - a.began, ctxErr: cut, cause: context.Cause(a.ctx), lastErr: err}
	case err == nil:
		err = ErrClosed
	}
	if a.lease == nil {
		a.leaveLine()
		return err
	}
	if a.ticket != nil {
		a.lease.state = unsent // by this operation
	}
	a.lease.abandon()
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

// noteHolder records that the store has answered with the hold in the way, and when that may end.
// The caller holds c.mu.
func (a *acquireOp) noteHolder(rec driver.Record) {
	now := a.c.clock.now()
	a.answered, a.queue.failing, a.queue.answeredAt = true, 0, now
	self := false
	for _, l := range a.queue.leases {
		self = self || (l.state == held || l.state == ending) && l.tokens.has(rec.Token)
	}
	rec.Name, a.heldUntil = a.name, 0
	if rec.Remaining > 0 {
		a.heldUntil = now + rec.Remaining + time.Millisecond + jitter(4*time.Millisecond)
	}
	a.queue.known = &HeldError{Record: rec, Self: self}
}

// soon bounds the pause after a failed request of a single attempt or of a place, and is the least
// timeout of a renewal.
const soon = 250 * time.Millisecond

// noteFailure records that a request that was sent at sent has failed. It returns the pause until
// the next request, or sets failure if there is none:
//
//   - the store will never do it;
//   - the store has refused the very first request;
//   - a single attempt has sent a second request, to learn the outcome of the first;
//   - the store has not answered for Config.MaxOutage.
//
// A store may announce when it can serve, such as a quorum whose nodes were divided among
// contenders. The time of the outage counts from then on, and only a deadline of ctx bounds it. A
// single attempt tries again soon for a request timeout at most. The head notes an outage for those
// in line, too. The caller holds c.mu.
func (a *acquireOp) noteFailure(now, sent time.Duration, err error) time.Duration {
	c, q := a.c, a.queue
	if a.ctx.Err() != nil {
		return 0 // The end of the caller's time shows nothing of the store.
	}
	pause, first := c.config.Backoff.nthDelay(a.pauses), q.failing == 0
	if a.pauses++; a.try {
		pause = min(pause, soon)
	} else if a.place > 0 { // It must not cost the place.
		pause = min(pause, soon, a.place/3)
	}
	if first {
		q.failing = sent
	}
	var later *driver.RetryError
	announced := errors.As(err, &later) &&
		(!a.try || 0 < later.After && later.After <= soon && now-a.began < c.config.RequestTimeout)
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
		if now-max(q.failing, b.began) >= c.config.MaxOutage && !(announced && bounded) {
			b.failure = fmt.Errorf("%w; given up after an outage of %v", unavailable, c.config.MaxOutage)
			b.signal()
		}
	}
	// After its deadline, NotApplied means that the request was never sent: that is no refusal.
	refused := driver.IsNotApplied(err) && !errors.Is(err, context.DeadlineExceeded)
	switch {
	case driver.Permanent(err), a.try && !announced && (refused || a.pauses > 1),
		refused && a.pauses == 1 && !a.answered && q.answeredAt == 0:
		a.failure = unavailable
	case a.failure == nil && first && (!announced || later.After == 0 || later.After > soon):
		// A log handler may be slow, or call the Client.
		c.activeCalls.Go(func() { c.logWarning(a.ctx, "store unavailable, trying again", a.name, err) })
	}
	return pause
}

var (
	// errNotAnswered is the error while nothing is known of a name.
	errNotAnswered = fmt.Errorf("%w: it has not answered yet", ErrUnavailable)

	// errAnsweredLate is the error of a grant that came after its end.
	errAnsweredLate = fmt.Errorf("%w: the answer came after the end of the TTL", ErrUnavailable)
)

// errWaited is the cause of the end of a wait that Options.Wait bounds.
func errWaited(wait time.Duration) error {
	return errors.New("the time to wait is over" + unitHint(wait))
}

// request makes one request to the store, on the caller's goroutine, and returns its result. The
// request ends when it is answered, after timeout, or at the deadline of ctx. It does not end when
// ctx is canceled, so that its outcome becomes known. A store in the memory of this process answers
// at once and gets ctx itself. All requests go through this function, except those of List; op is
// what the hooks get.
func request[T any](
	c *Client, ctx context.Context, op string, timeout time.Duration, call func(context.Context) (T, error),
) (value T, err error) {
	if c.config.Hooks.Event != nil {
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
