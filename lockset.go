package holdfast

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// A LockSet is a handle on several locks that were acquired together, by
// [Client.AcquireAll]. It is held as long as all of them are. Its methods may be
// called from any goroutine, and before and after Release. It must not be
// copied.
type LockSet struct {
	c            *Client
	locks        []*Lock // sorted by name
	*lockContext         // the locks refer to it; it does not refer to the set

	releaseOnce sync.Once
	releaseErr  error // result of Release
}

// newLockSet returns a LockSet of locks. Its context has the values of ctx.
func newLockSet(ctx context.Context, c *Client, locks []*Lock) *LockSet {
	s := &LockSet{c: c, locks: locks, lockContext: &lockContext{valuesCtx: ctx}}
	for _, l := range locks {
		l.cancelWith(s.lockContext.endContext)
	}
	return s
}

// registerWork registers work with each of the locks, or with none.
func (s *LockSet) registerWork(done <-chan struct{}) error {
	if end := s.contextErr(); end != nil {
		return end
	}
	for i, l := range s.locks {
		if err := l.registerWork(done); err != nil {
			for _, l := range s.locks[:i] {
				l.unregisterWork()
			}
			return err
		}
	}
	return nil
}

// Names returns the names of the locks, sorted.
func (s *LockSet) Names() []string {
	names := make([]string, len(s.locks))
	for i, l := range s.locks {
		names[i] = l.Name()
	}
	return names
}

// Tokens returns the fencing token of each lock, by name; see [Lock.Token].
func (s *LockSet) Tokens() map[string]int64 {
	tokens := make(map[string]int64, len(s.locks))
	for _, l := range s.locks {
		tokens[l.Name()] = l.Token()
	}
	return tokens
}

// String returns the names and tokens, for messages.
func (s *LockSet) String() string {
	texts := make([]string, len(s.locks))
	for i, l := range s.locks {
		texts[i] = l.String()
	}
	return strings.Join(texts, ", ")
}

// LogValue implements [slog.LogValuer]: the tokens by name, and the deadline.
func (s *LockSet) LogValue() slog.Value {
	return slog.GroupValue(slog.Any("tokens", s.Tokens()), slog.Time("deadline", s.Deadline()))
}

// Deadline returns the earliest deadline of the locks: until then all of them are held, whatever
// happens to the network. See [Lock.Deadline].
func (s *LockSet) Deadline() time.Time {
	first := slices.MinFunc(s.locks, func(a, b *Lock) int { return a.Deadline().Compare(b.Deadline()) })
	return first.Deadline()
}

// Err returns nil while all of the locks are held. After that it returns the reason of the end,
// for ever: the [LostError] of the lock that was lost, or [ErrReleased] after Release. It reads
// the clock each time, as [Lock.Err] does. The locks that were not lost are held until Release.
func (s *LockSet) Err() error {
	if end := s.contextErr(); end != nil {
		return end
	}
	for _, l := range s.locks {
		if end := l.Err(); end != nil {
			s.endContext(end)
			return s.contextErr()
		}
	}
	return nil
}

// Context returns a context that ends when any of the locks is no longer held,
// with Err's value as its context.Cause; see [Lock.Context].
func (s *LockSet) Context() context.Context { return s.makeContext(s.Err()) }

// Extend makes all locks last at least until d from now, with one request; see
// [Lock.Extend]. If it fails, some may have been extended and others not.
func (s *LockSet) Extend(ctx context.Context, d time.Duration) error {
	err := checkTTL(d)
	if err == nil && ctx == nil {
		err = errNoContext
	}
	if err == nil {
		err = s.Err()
	}
	if err == nil {
		err = s.c.beginCall()
	}
	if err == nil {
		err = s.c.extendAll(ctx, s.locks, d)
		s.c.activeCalls.Done()
	}
	if err != nil {
		return opErrorAll("extend", s.Names(), err)
	}
	return nil
}

// extendAll extends locks, with one request for each batchSize of them.
func (c *Client) extendAll(ctx context.Context, locks []*Lock, d time.Duration) error {
	leases := make([]*lease, len(locks))
	for i, l := range locks {
		leases[i] = l.lease
	}
	for batch := range slices.Chunk(leases, batchSize) {
		if err := c.extendLeases(ctx, d, batch...); err != nil {
			return err
		}
	}
	return nil
}

// Release releases all locks, concurrently. The LockSet's context ends before the first of them
// is free. See [Lock.Release]: the error contains each lock that had been lost before, or has an
// unconfirmed release; the others are released in any case. Further calls do nothing and
// return the same.
func (s *LockSet) Release() error {
	s.releaseOnce.Do(func() {
		s.endContext(ErrReleased)
		errs := make([]error, len(s.locks))
		s.c.forEachLock(len(errs), func(i int) { errs[i] = s.locks[i].Release() })
		s.releaseErr = joinAllErrors(errs)
	})
	return s.releaseErr
}

// joinAllErrors is errors.Join, but leaves a single error as it is.
func joinAllErrors(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}
