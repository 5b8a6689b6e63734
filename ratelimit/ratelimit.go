package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// MaxCalls is the greatest number of calls in a window.
const MaxCalls = 1000

// MaxWindow is the greatest length of a window.
const MaxWindow = 360 * 24 * time.Hour

// shareTTL is how long a share stays taken if the process ends before the call has passed: more
// than the requests of a call take together.
const shareTTL = 10 * time.Second

// ErrLimited is matched by every [LimitError].
var ErrLimited = errors.New("limit reached")

// A LimitError means that a call may not pass now.
type LimitError struct {
	// Key is what was limited.
	Key string

	// RetryAfter is the least time for which no call will pass, as far as the store has reported.
	// Another call may be faster then.
	RetryAfter time.Duration
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("ratelimit: %q: limit reached, try again after %v", e.Key, e.RetryAfter)
}

// Is reports whether target is ErrLimited.
func (e *LimitError) Is(target error) bool { return target == ErrLimited }

// Seconds returns RetryAfter as the value of an HTTP header Retry-After: in whole seconds, rounded
// up.
func (e *LimitError) Seconds() string {
	return strconv.Itoa(max(1, int(math.Ceil(e.RetryAfter.Seconds()))))
}

// A Limiter lets at most N calls for a key pass in any window. All Limiters of the same key must
// use the same N and window. A Limiter measures how long the releases of its store take: use one
// for many calls.
type Limiter struct {
	locks  *holdfast.Client
	n      int
	window time.Duration

	// slowest estimates the longest time in nanoseconds that recent releases took. A longer release
	// raises it at once; every other release lowers it by an eighth.
	slowest atomic.Int64
}

// New returns a limiter for n calls, at most MaxCalls, in any window of that length, from
// driver.MinTTL (10 ms) to MaxWindow. Take reports values out of bounds.
func New(locks *holdfast.Client, n int, window time.Duration) *Limiter {
	return &Limiter{locks: locks, n: n, window: window}
}

// Take returns nil if a call for the key may pass now. If the limit is reached, the error is a
// [LimitError]. Other errors are those of holdfast.Client.TryAcquire and holdfast.Lock.Release; the
// caller decides whether the call passes then, since holdfast.ErrUnavailable means nothing about
// the limit. A call that does not pass may be counted for a window: if the release is not
// confirmed, or if its reply comes unusually late.
//
// The key is the name of a lock. With n above 1 it has a limit of n, so that the store must have
// holdfast.Guarantees().Limits.
//
// A share of the limit stays taken for the window and a grace period, counted from the moment
// before the release was sent. The grace period covers the time that the reply takes. If the reply
// takes longer, the call does not pass. Releases seldom take longer than three times what the
// acquisition took, or twice what a release usually takes, even on a slow network. The hundredth of
// the window costs hardly any calls.
func (l *Limiter) Take(ctx context.Context, key string) error {
	if err := l.validate(); err != nil {
		return fmt.Errorf("ratelimit: %q: %w", key, err)
	}
	options := &holdfast.Options{TTL: shareTTL, NoRenew: true, Limit: l.n}
	began := time.Now()
	lock, err := l.locks.TryAcquire(ctx, key, options)
	var held *holdfast.HeldError
	if errors.As(err, &held) {
		limited := &LimitError{Key: key, RetryAfter: l.window}
		if held.Record.Kept && held.Record.Remaining > 0 {
			limited.RetryAfter = min(l.window, held.Record.Remaining)
		}
		return limited
	}
	if err != nil {
		return err
	}
	released := time.Now()
	slowest := l.slowest.Load()
	grace := max(l.window/100+3*released.Sub(began), 2*time.Duration(slowest))
	if err := lock.ReleaseKeep(l.window + grace); err != nil {
		return err
	}
	took := time.Since(released)
	// A single reply that is very late raises the next grace period at most tenfold. So a pause
	// costs little, and a few calls suffice to measure a store with releases that are always slow.
	// Of two concurrent calls either may win.
	l.slowest.Store(max(int64(min(took, 5*grace)), slowest-slowest/8))
	if took <= grace {
		return nil
	}
	retryAfter := l.window + grace - took
	if l.n > 1 { // there may be another share
		retryAfter = took
	}
	return &LimitError{Key: key, RetryAfter: max(0, min(l.window, retryAfter))}
}

// Wait waits until a call for the key may pass, or ctx ends. Waiting calls pass in no particular
// order. Errors are those of Take. A LimitError is returned only if ctx ended the wait, joined with
// ctx.Err().
func (l *Limiter) Wait(ctx context.Context, key string) error {
	for {
		err := l.Take(ctx, key)
		var limited *LimitError
		if !errors.As(err, &limited) {
			return err
		}
		if err := retry.Sleep(ctx, limited.RetryAfter+rand.N(5*time.Millisecond)); err != nil {
			return fmt.Errorf("%w (%w)", err, limited)
		}
	}
}

func (l *Limiter) validate() error {
	switch {
	case l.locks == nil:
		return fmt.Errorf("%w: the client is nil", holdfast.ErrInvalid)
	case l.n < 1 || l.n > MaxCalls:
		return fmt.Errorf("%w: %d calls, want 1 to %d", holdfast.ErrInvalid, l.n, MaxCalls)
	case l.window < driver.MinTTL || l.window > MaxWindow:
		return fmt.Errorf("%w: a window of %v, want %v to %v", holdfast.ErrInvalid, l.window, driver.MinTTL, MaxWindow)
	case !l.locks.Guarantees().Keep:
		return fmt.Errorf("%w: to keep names", holdfast.ErrUnsupported)
	}
	return nil
}
