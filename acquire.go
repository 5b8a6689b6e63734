package holdfast

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
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
	return (&lease{c: c, op: opAcquire}).acquire(ctx, name, o)
}

// TryAcquire makes one attempt and does not wait for the lock. If the lock is held, by another
// goroutine of this Client too, the error is a [HeldError]; if that is not known, it matches
// [ErrUnavailable]. The ctx ends it as it ends Acquire.
func (c *Client) TryAcquire(ctx context.Context, name string, o *Options) (*Lock, error) {
	return (&lease{c: c, op: opTry}).acquire(ctx, name, o)
}

// The operations that take a lock, as hooks name them. The errors of a try name opAcquire.
const (
	opAcquire = "acquire"
	opTry     = "try"
	opAdopt   = "adopt"
)

// acquire takes the lease from the call to its grant, and tells the hooks of both. The Lock is of
// another lease if it has joined that.
func (l *lease) acquire(ctx context.Context, name string, o *Options) (*Lock, error) {
	c, op := l.c, l.op
	if op == opTry {
		op = opAcquire
	}
	if o != nil {
		l.options = *o
	}
	o = &l.options
	if err := c.begin(ctx, o, name); err != nil {
		return nil, opError(op, name, err)
	}
	defer c.activeCalls.Done()
	switch {
	case l.op == opTry:
		o.Wait = 0
	case o.MaxAttempts == 0 && l.ticket == nil:
		l.place = min(o.TTL, maxPlaceTTL)
		if can := &c.guarantees; can.Queue && can.Crash == driver.FateFreed && !can.InProcess {
			l.place = min(o.TTL, maxFreedPlace)
		}
	}
	if l.ctx = ctx; c.config.Hooks.Start != nil {
		l.ctx = c.config.Hooks.Start(ctx, Start{Op: l.op, Store: c.guarantees.Store, Name: name, Holder: c.config.Holder, TTL: o.TTL})
	}
	if o.Wait > 0 {
		limited, cancel := context.WithTimeoutCause(l.ctx, o.Wait, errWaited(o.Wait))
		defer cancel()
		l.ctx = limited
	}
	l.name, l.began = c.config.Prefix+name, c.clock.now()
	l.handle = Lock{lease: l, lockContext: lockContext{c: c, valuesCtx: l.ctx}}
	l.locks = []*Lock{&l.handle}
	lock, err := &l.handle, l.run()
	if err != nil {
		lock, err = nil, opError(op, name, err)
	}
	if !c.watched {
		return lock, err
	}
	e := Event{Kind: EventAcquired, Name: name, Took: c.clock.now() - l.began, Err: err}
	if l.waitEmitted {
		c.emit(l.ctx, Event{Kind: EventWaited, Name: name, Took: e.Took, Err: err})
	}
	switch {
	case errors.Is(err, ErrHeld):
		e.Kind = EventRefused
	case err != nil:
		e.Kind = EventFailed
	default:
		e.Token, e.TTL = lock.Token(), lock.lease.options.TTL
		if lock.lease != l {
			e.Kind = EventJoined
		}
	}
	c.emit(l.ctx, e)
	return lock, err
}

// run takes the lease through the queue of the name until its caller has a Lock or an error. It
// holds c.mu, except during requests and waits. Meanwhile a notice may grant it or have it look,
// and the head may give one in the line its turn, a Lock, or a failure. Nothing else changes it.
func (l *lease) run() error {
	c, o, exclusive, now := l.c, &l.options, l.options.limit() == 0, l.began
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queues[l.name]
	if q == nil {
		if q = c.spareQueue; q == nil {
			q = &nameQueue{}
		}
		c.spareQueue, c.queues[l.name] = nil, q
	}
	l.queue, l.state = q, unsent
	if t := l.ticket; t != nil { // The store has its entry.
		l.state, l.owner, l.tokens, l.longest = requesting, t.Owner, tokenBlock{first: t.Token, count: 1}, t.Left
		l.deadline.Store(int64(now + driver.Validity(o.TTL)))
	}
	if inOrder := exclusive && l.place > 0; inOrder && q.head != nil {
		l.state, q.line = inLine, append(q.line, l)
	} else if q.leases = append(q.leases, l); inOrder {
		q.head = l
	}
	for l.state < held {
		deadline := time.Duration(l.deadline.Load())
		switch {
		case l.ctx.Err() != nil || l.err != nil || c.closed:
			return l.giveUp()
		case o.Reentrant && l.state <= unsent && l.join():
		case l.state == unsent && l.op == opTry && exclusive && q.head != nil && (q.head.isHeld() || q.head.state == winding):
			l.err = &HeldError{Record: q.head.record(), Self: true}
		case l.state == inLine:
			now = l.wait(0)
		case l.state == granted && now >= deadline: // The answer came late: look again.
			l.state, l.confirmed, l.due = waiting, false, now+l.noteFailure(now, now, errAnsweredLate)
		case l.state == granted && (l.confirmed || !o.NoRenew && !o.Detached && o.MaxHold == 0):
			l.state, l.tokens.own = held, l.tokens.first
			if !l.confirmed && l.look == noLook { // It has the time of its place, and soon its TTL.
				l.due = now + min(max(c.config.LocalTurn, shortHold), (deadline-now)/3)
			}
			l.checkAt(now, l.due)
			if q.head == nil && exclusive { // It came without a place.
				q.head = l
			}
			if q.head == l {
				q.turnEnd = l.since + c.config.LocalTurn
			}
			if o.Reentrant { // Those in the line may join it.
				for _, other := range q.line {
					other.signal()
				}
			}
		case l.due > now:
			now = l.wait(l.due - now)
		case l.state == unsent:
			now = l.ask(now)
		default: // Look what has become of it.
			l.inFlight++
			c.mu.Unlock()
			_ = c.renewLeases(l.ctx, 0, []*lease{l}) // apply records the outcome
			c.mu.Lock()
			now = c.clock.now()
		}
	}
	return nil
}

// ask requests an entry for a new owner. The reading sent is not after the sending. If the lease
// can be passed on to the line, the entry gets tokens for that. The reading that it returns does
// not count a suspend since sent, as if that came after the grant: Err and the Context show it.
func (l *lease) ask(sent time.Duration) (now time.Duration) {
	c, o, q := l.c, &l.options, l.queue
	r := sentRequest{l: l, state: unsent, sent: sent, asked: cmp.Or(l.place, o.TTL)}
	l.owner, l.state, l.look, l.confirmed = rand.Text(), requesting, noLook, false
	l.tokens, l.longest = tokenBlock{count: 1}, o.TTL
	if q.head == l && len(q.line) > 0 && c.config.LocalTurn > 0 && c.guarantees.Queue && o.passableTo(&q.line[0].options) {
		l.tokens.count = max(min(c.guarantees.Tokens, driver.MaxTokens), 1)
	}
	l.deadline.Store(int64(sent + driver.Validity(r.asked))) // A notice may come before the answer.
	req := driver.Request{
		Name: l.name, Owner: l.owner, Holder: c.config.Holder, TTL: o.TTL, Place: l.place, Limit: o.limit(),
		Tokens: l.tokens.count, Detached: o.Detached, Metadata: o.Metadata,
	}
	c.mu.Unlock()
	began := time.Now()
	res, err := request(c, l.ctx, "acquire", min(c.config.RequestTimeout, o.TTL), func(ctx context.Context) (driver.Result, error) {
		return c.store.Acquire(ctx, req)
	})
	c.mu.Lock()
	now = sent + time.Since(began)
	entry := driver.Entry{Token: res.Token}
	switch {
	case err != nil:
	case !res.Granted:
		if l.noteHolder(now, &res); !res.Waiting {
			return now
		}
		entry.State = driver.Waiting
	default:
		entry.State, r.asked = driver.Held, o.TTL
	}
	_ = r.apply(now, entry, err)
	if driver.IsNotApplied(err) {
		l.restart(l.due, true)
	}
	return now
}

// wait returns when the lease was signaled, when the call's time or the Client has ended, or after
// pause unless that is 0. Before its first wait for a holder it tells the hooks, and returns.
func (l *lease) wait(pause time.Duration) (now time.Duration) {
	c := l.c
	if !l.waitEmitted && l.op == opAcquire {
		if by, isHeld := l.lastKnown().(*HeldError); isHeld || l.state == inLine {
			l.waitEmitted = true
			c.mu.Unlock()
			if !isHeld { // It waits behind a goroutine that has no answer yet.
				by = &HeldError{Record: Record{Name: c.stripPrefix(l.name), Holder: c.config.Holder}}
			}
			c.emit(l.ctx, Event{Kind: EventWaiting, Name: by.Record.Name, By: &by.Record})
			c.mu.Lock()
			return c.clock.now()
		}
	}
	if l.wake == nil {
		l.wake = make(chan struct{}, 1)
	}
	c.mu.Unlock()
	var over <-chan time.Time
	if pause > 0 {
		over = time.After(pause)
	}
	select {
	case <-l.wake:
	case <-over:
	case <-l.ctx.Done():
	case <-c.closing:
	}
	c.mu.Lock()
	return c.clock.now()
}

// restart has the lease ask anew at due, as another owner. The present one is released, unless it
// is absent: the store has answered that it has no entry, and no notice has granted it. The caller
// holds c.mu.
func (l *lease) restart(due time.Duration, absent bool) {
	if !absent || l.state == granted {
		l.releaseInBackground(0, l.state == requesting)
	}
	l.state, l.due = unsent, due
}

// giveUp ends an acquisition and returns the error for its caller. If the store may have an entry,
// that is released in the background. The hold of a ticket goes on. The caller holds c.mu.
func (l *lease) giveUp() error {
	c, err := l.c, l.err
	switch cut := l.ctx.Err(); {
	case cut != nil:
		if err == nil {
			err = l.lastKnown()
		}
		waited := (c.clock.now() - l.began).Round(time.Millisecond)
		err = waitError{fmt.Errorf("gave up after %v (%w): %w", waited, context.Cause(l.ctx), err), cut}
	case err == nil:
		err = ErrClosed
	}
	if l.ticket == nil && l.state > unsent {
		l.releaseInBackground(0, l.state == requesting)
	}
	l.finish(nil)
	return err
}

// signal ends a wait of the lease. The caller holds c.mu.
func (l *lease) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// lastKnown returns what was last known of the name: a HeldError, or why that is not known. A hold
// of the head is believed until its deadline, any other for a TTL after the last answer to a call.
// The caller holds c.mu.
func (l *lease) lastKnown() error {
	q, now := l.queue, l.c.clock.now()
	_, isHeld := q.known.(*HeldError)
	switch head := q.head; {
	case head != nil && head.state >= held && l.options.limit() == 0 && now < time.Duration(head.deadline.Load()):
		return &HeldError{Record: head.record(), Self: true}
	case q.known != nil && (!isHeld || now < q.answeredAt+l.options.TTL):
		return q.known
	}
	return errNotAnswered
}

// noteHolder records the answer that a hold is in the way, and when that may end. A lease that does
// not wait in the store has failed with its last attempt, or asks again. The caller holds c.mu.
func (l *lease) noteHolder(now time.Duration, res *driver.Result) {
	c, o, q, rec := l.c, &l.options, l.queue, res.Held
	q.outageFrom, q.answeredAt = 0, now
	self := slices.ContainsFunc(q.leases, func(l *lease) bool { return l.state >= granted && l.tokens.has(rec.Token) })
	rec.Name, l.heldUntil = c.stripPrefix(l.name), 0
	if rec.Remaining > 0 {
		l.heldUntil = now + rec.Remaining + time.Millisecond + jitter(4*time.Millisecond)
	}
	q.known = &HeldError{Record: rec, Self: self}
	if res.Waiting {
		return
	}
	if o.MaxAttempts--; l.op == opTry || o.MaxAttempts == 0 {
		l.err = q.known
	}
	pause := c.config.Backoff.nthDelay(l.pauses)
	if l.pauses++; l.heldUntil > now {
		pause = min(pause, l.heldUntil-now)
	}
	if l.look == noticed {
		pause = 0
	}
	l.restart(now+pause, true)
}

// soon bounds the pauses of a single attempt, and of a place unless the server has announced one. A
// renewal has at least this timeout, if the TTL allows that.
const soon = 250 * time.Millisecond

// noteFailure records that a request that was sent at sent has failed. It returns the pause until
// the next one, or sets err if there is none: the store will never do it, or has refused the
// very first request; a single attempt was not applied, or the look at what became of it has
// failed, too; or the store has not answered for Config.MaxOutage.
//
// A store may announce when it can serve, such as a quorum whose nodes were divided. The outage
// counts from then on. If ctx has a deadline, that alone bounds it. A single attempt tries again
// soon, for a request timeout at most. The head notes an outage for those in line, too. The caller
// holds c.mu.
func (l *lease) noteFailure(now, sent time.Duration, err error) time.Duration {
	c, q, try := l.c, l.queue, l.op == opTry
	if l.ctx.Err() != nil {
		return 0 // The end of the caller's time shows nothing of the store.
	}
	pause, begins := c.config.Backoff.nthDelay(l.pauses), q.outageFrom == 0
	if try || l.place > 0 {
		pause = min(pause, soon, l.options.TTL/3)
	}
	l.pauses++
	if begins {
		q.outageFrom = sent
	}
	var later *driver.RetryError
	announced := errors.As(err, &later) &&
		(!try || 0 < later.After && later.After <= soon && now-l.began < c.config.RequestTimeout)
	if announced {
		if begins || l.pauses == 1 {
			q.outageFrom = max(q.outageFrom, now+later.After)
		}
		if later.After > 0 {
			pause = min(later.After, time.Second, max(l.options.TTL/3, soon)) + jitter(4*time.Millisecond)
		}
	}
	unavailable := storeError(context.Background(), err) // l.ctx may have ended just now
	if _, isHeld := q.known.(*HeldError); !isHeld || !announced {
		q.known = unavailable
	}
	callers := []*lease{l}
	if q.head == l {
		callers = append(callers, q.line...)
	}
	for _, other := range callers {
		_, bounded := other.ctx.Deadline()
		if now-max(q.outageFrom, other.began) >= c.config.MaxOutage && !(announced && bounded) {
			other.err = fmt.Errorf("%w; given up after an outage of %v", unavailable, c.config.MaxOutage)
			other.signal()
		}
	}
	// After its deadline, NotApplied means that the request was never sent: that is no refusal.
	notApplied := driver.IsNotApplied(err) && !errors.Is(err, context.DeadlineExceeded)
	switch {
	case driver.Permanent(err), try && !announced && (notApplied || l.pauses > 1),
		notApplied && l.pauses == 1 && !announced && !l.further && q.answeredAt == 0:
		l.err = unavailable
	case l.err == nil && begins && (!announced || later.After == 0 || later.After > soon):
		// A log handler may be slow, or call the Client.
		c.activeCalls.Go(func() { c.logWarning(l.ctx, "store unavailable, trying again", c.stripPrefix(l.name), err) })
	}
	return pause
}

// What an answer of the store has shown, or that there is none.
var (
	errNotAnswered   = fmt.Errorf("%w: it has not answered yet", ErrUnavailable)
	errAnsweredLate  = fmt.Errorf("%w: the answer came after the end of the TTL", ErrUnavailable)
	errTicketExpired = fmt.Errorf("%w: the hold of this ticket is over, or in another store", ErrNotHeld)
)

// errWaited is the cause of the end of a wait that Options.Wait bounds.
func errWaited(wait time.Duration) error {
	return errors.New("the time to wait is over" + unitHint(wait))
}

// request makes one request to the store, on the caller's goroutine, and returns its result. The
// request ends when it is answered, after timeout, or at the deadline of ctx. It does not end when
// ctx is canceled, so that its outcome becomes known. A store in the memory of this process answers
// at once and gets ctx itself. All requests but those of List come here; op is what the hooks get.
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
	limited, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
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
// client of another kind, and requests that have failed. The pauses grow from Min to Max by
// doubling. Each is drawn at random from its upper half, so that waiters do not try at the same
// moments. None is below 1 ms.
type Backoff struct {
	Min time.Duration // the first pause; 0 means 2 ms
	Max time.Duration // the greatest, at least Min; 0 means 250 ms, or Min if that is more
}

// nthDelay returns the n-th pause, counting from 0.
func (b Backoff) nthDelay(n int) time.Duration {
	d := b.Max
	if n = min(n, 62); b.Min <= d>>n {
		d = b.Min << n
	}
	return max(jitter(d), time.Millisecond)
}

// jitter returns a random duration in the upper half of d.
func jitter(d time.Duration) time.Duration {
	return d - mathrand.N(d/2+1)
}
