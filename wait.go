package holdfast

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Backoff paces the attempts of a waiter that gets no notices from the store, or that waits for a
// client of another kind. The pauses grow from Min to Max by doubling. Each is drawn at random from
// its upper half, so that waiters do not try at the same moments.
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

// A retryWaiter waits between the attempts of a call: while the name is held, for a notice of the
// store, the end of the hold, or a pause; and while the store fails, for as long as the call keeps
// trying.
type retryWaiter struct {
	c        *Client
	ctx      context.Context
	fullName string
	pauses   int // how many there were

	head *queueHead // that the call is, or nil

	singleAttempt  bool          // the caller does not wait for the lock, only for the outcome
	hasAnswered    bool          // the store has answered before
	failing        bool          // the last request failed
	retryAnnounced bool          // a RetryError came since the last answer
	failingSince   time.Duration // when the outage began, or is announced to end
}

// waitRetry waits after an answer until it is time for the next attempt, or a notice comes. It returns
// an error if ctx or the Client has ended.
func (w *retryWaiter) waitRetry(res *driver.AcquireResult) error {
	c, held := w.c, &res.Held
	var pause time.Duration
	place := res.Queued && c.guarantees.Fair && w.head != nil
	foreign := c.guarantees.Fencing && held.Token == 0 && !held.Kept // The store does not notice its end.
	switch {
	case place && !res.First, place && held.Remaining > 0 && !foreign:
		pause = time.Hour
	case res.Queued && !place:
		pause = jitter(noticedPause)
	default:
		pause = c.backoff.nthDelay(w.pauses)
		w.pauses++
	}
	switch {
	case held.Remaining <= 0:
	case place && res.First:
		pause = min(pause, held.Remaining+time.Millisecond)
	case !place:
		// Shortly after the end of the hold, each waiter at a different moment.
		pause = min(pause, held.Remaining+time.Millisecond+jitter(4*time.Millisecond))
	}
	return w.sleepFor(pause)
}

// noteAnswer records that the store has answered.
func (w *retryWaiter) noteAnswer() { w.hasAnswered, w.failing, w.retryAnnounced = true, false, false }

// waitOutage pauses after a request that was sent at sent has failed with err, until it is time to
// try again. It returns the error of the caller if the caller should not: after Config.MaxOutage,
// or two request timeouts for a single attempt. If the store has announced that it can serve later,
// the time counts from that moment; if ctx has a deadline, only ctx bounds the wait then.
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
	pause := w.c.backoff.nthDelay(w.pauses)
	w.pauses++
	if after > 0 { // the store may serve sooner than announced
		pause = min(after, time.Second) + jitter(4*time.Millisecond)
	}
	return w.sleepFor(pause)
}

// sleepFor returns after d, or sooner when a notice comes, ctx ends, or the Client is closed; the last
// two are errors.
func (w *retryWaiter) sleepFor(d time.Duration) error {
	wake, noticed := w.takeNoticed()
	if noticed {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-wake:
		w.takeNoticed()
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	case <-w.c.closing:
		return ErrClosed
	}
}

// takeNoticed returns the channel that ends a pause of the head, and whether a notice has come
// since the last call.
func (w *retryWaiter) takeNoticed() (wake <-chan struct{}, noticed bool) {
	h := w.head
	if h == nil {
		return nil, false
	}
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	if h.wake == nil {
		h.wake = make(chan struct{}, 1)
	}
	noticed, h.noticed = h.noticed, false
	return h.wake, noticed
}
