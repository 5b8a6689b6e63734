package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// MaxCalls is the greatest number of calls in a window.
const MaxCalls = 1000

// graceTTL is for how long at least a place is taken by a process that ends
// between taking it and saying for how long it is to be kept.
const graceTTL = 3 * time.Second

// ErrLimited is what every [LimitError] matches.
var ErrLimited = errors.New("limit reached")

// A LimitError says that a call may not pass now.
type LimitError struct {
	// Key is what was limited.
	Key string

	// RetryAfter is for how long at least no place will be free, as far as the
	// store told. Others may take it then.
	RetryAfter time.Duration
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("ratelimit: %q: limit reached, try again after %v", e.Key, e.RetryAfter)
}

// Is reports whether target is ErrLimited.
func (e *LimitError) Is(target error) bool { return target == ErrLimited }

// Seconds returns RetryAfter as the value of an HTTP header Retry-After: in
// whole seconds, rounded up.
func (e *LimitError) Seconds() string {
	return strconv.Itoa(max(1, int(math.Ceil(e.RetryAfter.Seconds()))))
}

// A Limiter lets at most N calls for a key pass in any window. It keeps nothing
// but its parameters: making one for a single call is fine. All that limit the
// same key must use the same N and window.
type Limiter struct {
	locks  *holdfast.Client
	n      int
	window time.Duration
}

// New returns a limiter for n calls, at most MaxCalls, in any window of that
// length, from driver.MinTTL (10 ms) to driver.MaxTTL. What is out of bounds is
// reported by Take.
func New(locks *holdfast.Client, n int, window time.Duration) *Limiter {
	return &Limiter{locks: locks, n: n, window: window}
}

// Take returns nil if a call for the key may pass now. If not, the error is a
// [LimitError]. Other errors are those of holdfast.Client.TryAcquire; the call
// must not pass then, or may, as the caller sees fit: holdfast.ErrUnavailable
// says nothing about the limit.
//
// The key is the name of a lock; for n above 1 its places are named key#0, key#1
// and so on.
func (l *Limiter) Take(ctx context.Context, key string) error {
	if err := l.check(); err != nil {
		return fmt.Errorf("ratelimit: %q: %w", key, err)
	}
	limited := &LimitError{Key: key, RetryAfter: l.window}
	first := rand.IntN(l.n) // so that callers seldom want the same place
	for i := range l.n {
		name := key
		if l.n > 1 {
			name += "#" + strconv.Itoa((first+i)%l.n)
		}
		err := l.place(ctx, name)
		var held *holdfast.HeldError
		if !errors.As(err, &held) {
			return err
		}
		if held.Record.Kept && held.Record.Remaining > 0 {
			limited.RetryAfter = min(limited.RetryAfter, held.Record.Remaining)
		}
	}
	return limited
}

// place takes a place and leaves it taken for the window.
//
// The hold itself lasts as long, so that the place stays taken if its release is
// not confirmed: the store frees it no sooner either way, and that the release
// failed is no reason for the call not to pass.
func (l *Limiter) place(ctx context.Context, name string) error {
	lock, err := l.locks.TryAcquire(ctx, name, &holdfast.Options{
		TTL:     max(l.window, graceTTL),
		MinHold: l.window,
		NoRenew: true,
	})
	if err != nil {
		return err
	}
	if err := lock.Release(); errors.Is(err, holdfast.ErrLost) {
		return err // it was freed too early: another may have it
	}
	return nil
}

// Wait waits until a call for the key may pass, or ctx ends. Those who wait are
// not served in any order. Errors are those of Take, but for LimitError, which
// is only returned, joined with ctx.Err(), where the wait was cut short.
func (l *Limiter) Wait(ctx context.Context, key string) error {
	for {
		err := l.Take(ctx, key)
		var limited *LimitError
		if !errors.As(err, &limited) {
			return err
		}
		timer := time.NewTimer(limited.RetryAfter + rand.N(5*time.Millisecond))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w (%w)", ctx.Err(), limited)
		}
	}
}

func (l *Limiter) check() error {
	switch {
	case l.n < 1 || l.n > MaxCalls:
		return fmt.Errorf("%w: %d calls, want 1 to %d", holdfast.ErrInvalid, l.n, MaxCalls)
	case l.window < driver.MinTTL || l.window > driver.MaxTTL:
		return fmt.Errorf("%w: a window of %v, want %v to %v", holdfast.ErrInvalid, l.window, driver.MinTTL, driver.MaxTTL)
	}
	return nil
}
