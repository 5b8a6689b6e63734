package holdfast

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Backoff paces the attempts of a waiter. A waiter tries again when the store signals a release,
// when the holder's time is over, and after a pause. The pauses grow from Min to Max by doubling.
// Each is drawn at random from its upper half, so that waiters do not try at the same moments.
//
// The greatest pause bounds how long a lock can be free before a waiter acquires it, whatever
// freed it and however many wake-ups were lost. If the store detects lost wake-ups itself
// (Guarantees().Supervised), that pause is long, because the store's signals come first and the
// pause is only the fallback; a waiter then costs next to nothing.
type Backoff struct {
	// Min is the first pause; 0 means 2 ms.
	Min time.Duration

	// Max is the greatest pause while the store does not signal releases, at least Min; 0 means
	// 250 ms, or Min if that is more.
	Max time.Duration

	// Watched is the greatest pause while it does; 0 means 2 s, or 20 s if the
	// Guarantees of the store are Supervised.
	Watched time.Duration
}

// withDefaults returns b with its zero fields set to the defaults.
func (b Backoff) withDefaults(guarantees driver.Guarantees) Backoff {
	if b.Min <= 0 {
		b.Min = 2 * time.Millisecond
	}
	if b.Max <= 0 {
		b.Max = 250 * time.Millisecond
	}
	switch {
	case b.Watched > 0:
	case guarantees.Supervised:
		b.Watched = 20 * time.Second
	default:
		b.Watched = 2 * time.Second
	}
	b.Max = max(b.Max, b.Min)
	return b
}

// nthDelay returns the n-th pause, counting from 0.
func (b Backoff) nthDelay(n int) time.Duration {
	d := b.Max
	if n < 30 && b.Min<<n < b.Max {
		d = b.Min << n
	}
	return jitter(d)
}

// jitter returns a random duration in the upper half of d.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1)
}

// A retryWaiter waits between the attempts of a call: while the name is held, for a signal from the
// store, the end of the hold, or a pause; and while the store fails, for as long as the call keeps
// trying.
type retryWaiter struct {
	c          *Client
	ctx        context.Context
	fullName   string
	wake       <-chan struct{}    // signals from the store, nil if there are none
	stopWatch  context.CancelFunc // nil if there is no watch
	subscribed bool               // subscribe was called
	pauses     int                // how many there were

	isHead    bool          // of the queue of the name
	rechecked bool          // another goroutine of the Client ended the last pause
	pauseEnd  time.Duration // when that pause would have ended

	singleAttempt  bool          // the caller does not wait; it only needs to learn the outcome
	hasAnswered    bool          // the store has answered before
	failing        bool          // it has not answered since
	retryAnnounced bool          // it has announced since then that it can serve later
	failingSince   time.Duration // when the failing began, or will end as announced
}

// subscribe starts a watch of the name in the store, once. It reports whether a watch has
// started. The watch lasts until unsubscribe; a timer bounds the call, at the deadline of w.ctx if
// that is sooner.
func (w *retryWaiter) subscribe() bool {
	if w.subscribed || w.ctx.Err() != nil {
		return false
	}
	w.subscribed = true
	watcher, ok := w.c.store.(driver.Watcher)
	if !ok || !w.c.guarantees.Push {
		return false
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.ctx))
	timeout := w.c.requestTimeout
	if deadline, ok := w.ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline))
	}
	timer := time.AfterFunc(timeout, cancel)
	wake, err := watcher.Watch(ctx, w.fullName)
	if !timer.Stop() {
		err = timeoutError(timeout)
	}
	if err != nil {
		cancel()
		w.c.logWarning(w.ctx, "no wake-ups, trying at intervals", w.c.stripPrefix(w.fullName), err)
		return false
	}
	w.wake, w.stopWatch = wake, cancel
	return true
}

// waitRetry returns when it is time to try again, given how long the hold has left (0 if
// unknown). A pause that another goroutine has ended continues where it was. It returns an error
// if the waiting is over.
func (w *retryWaiter) waitRetry(remaining time.Duration) error {
	now := w.c.clock.now()
	if !w.rechecked {
		pause := w.c.backoff.nthDelay(w.pauses)
		if w.wake != nil {
			pause = jitter(w.c.backoff.Watched)
		}
		w.pauses++
		w.pauseEnd = now + pause
	}
	if remaining > 0 {
		// Shortly after the end of the hold, each waiter at a different moment.
		w.pauseEnd = min(w.pauseEnd, now+remaining+time.Millisecond+jitter(4*time.Millisecond))
	}
	return w.sleepFor(w.pauseEnd - now)
}

// noteAnswer records that the store has answered.
func (w *retryWaiter) noteAnswer() { w.hasAnswered, w.failing, w.retryAnnounced = true, false, false }

// waitOutage pauses after a request that was sent at sent has failed with err, until it is time to
// try again. It returns the error of the caller if the caller should not: after Config.MaxOutage, or
// two request timeouts for a single attempt. If the store has announced that it can serve later, the
// time counts from that moment; if ctx has a deadline, only ctx bounds the wait then.
func (w *retryWaiter) waitOutage(sent time.Duration, err error) error {
	first := !w.failing
	if first {
		w.failing, w.failingSince = true, sent
	}
	if ctxErr := w.ctx.Err(); ctxErr != nil {
		return ctxErr
	}
	now := w.c.clock.now()
	limit := w.c.outage
	if w.singleAttempt {
		limit = 2 * w.c.requestTimeout // time for a second request, to learn the outcome
	}
	var after time.Duration
	bounded := false // the caller bounds the wait for a server that has announced a retry
	if later := (*driver.RetryError)(nil); errors.As(err, &later) && !w.singleAttempt {
		after = later.After
		_, bounded = w.ctx.Deadline()
		if !w.retryAnnounced {
			w.hasAnswered, w.retryAnnounced, w.failingSince = true, true, max(w.failingSince, now+after)
		}
	}
	// A request that was not sent in time, as behind one that hangs, has not been refused.
	refused := driver.IsNotApplied(err) && !errors.Is(err, context.DeadlineExceeded) && (w.singleAttempt || !w.hasAnswered)
	if driver.Permanent(err) || refused || !bounded && now-w.failingSince >= limit {
		return storeError(w.ctx, err)
	}
	if first {
		w.c.logWarning(w.ctx, "store unavailable, trying again", w.c.stripPrefix(w.fullName), err)
	}
	w.pauses++
	pause := w.c.backoff.nthDelay(w.pauses)
	if after > 0 { // the store may serve sooner than announced
		pause = min(after, time.Second) + jitter(4*time.Millisecond)
	}
	return w.sleepFor(pause)
}

// sleepFor returns after d, or sooner when the store signals, another goroutine requests a
// recheck, ctx ends, or the Client is closed; the last two are errors.
func (w *retryWaiter) sleepFor(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	w.rechecked = false
	select {
	case <-w.wake:
		return nil
	case <-timer.C:
		return nil
	case <-w.recheckSignal():
		w.rechecked = true
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	case <-w.c.closing:
		return ErrClosed
	}
}

// recheckSignal returns the channel by which other goroutines of the Client end a pause of the
// head, nil if the caller is not the head.
func (w *retryWaiter) recheckSignal() <-chan struct{} {
	if !w.isHead {
		return nil
	}
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	q := w.c.queues[w.fullName]
	if q.recheck == nil {
		q.recheck = make(chan struct{}, 1)
	}
	return q.recheck
}

// unsubscribe ends the watch.
func (w *retryWaiter) unsubscribe() {
	if w.stopWatch != nil {
		w.stopWatch()
	}
}
