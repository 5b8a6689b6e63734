package holdfast

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// A LockSet is a handle on several locks that were acquired together, by
// [Client.AcquireAll]. It is held as long as all of them are. Its methods may be
// called from any goroutine, and before and after Release. It must not be
// copied.
type LockSet struct {
	c     *Client
	locks []*Lock // by name
	life

	once   sync.Once
	result error // of Release
}

func newLockSet(ctx context.Context, c *Client, locks []*Lock) *LockSet {
	s := &LockSet{c: c, locks: locks, life: life{values: ctx}}
	for _, l := range locks {
		l.bind(s.finish)
	}
	return s
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

// Deadline returns the earliest deadline of the locks: until then all of them
// are ours, whatever happens to the network. See [Lock.Deadline].
func (s *LockSet) Deadline() time.Time {
	first := slices.MinFunc(s.locks, func(a, b *Lock) int { return a.Deadline().Compare(b.Deadline()) })
	return first.Deadline()
}

// Err returns nil while all of the locks are held. After that it returns, for
// ever, why they are not: the [LostError] of the one that was lost, or
// [ErrReleased] after Release. It reads the clock each time, as [Lock.Err] does.
// The locks that were not lost are held until Release.
func (s *LockSet) Err() error {
	if end := s.ended(); end != nil {
		return end
	}
	for _, l := range s.locks {
		if end := l.Err(); end != nil {
			s.finish(end)
			return s.ended()
		}
	}
	return nil
}

// Context returns a context that ends when any of the locks is no longer held,
// with Err's value as its context.Cause; see [Lock.Context].
func (s *LockSet) Context() context.Context { return s.context(s.Err()) }

// Extend makes all locks last at least until d from now, with one request; see
// [Lock.Extend]. If it fails, some may have been extended and others not.
func (s *LockSet) Extend(ctx context.Context, d time.Duration) error {
	err := checkTTL(d)
	if err == nil {
		err = s.Err()
	}
	if err == nil {
		err = s.c.begin()
	}
	if err == nil {
		err = s.c.extendAll(ctx, s.locks, d)
		s.c.active.Done()
	}
	if err != nil {
		return failedAll("extend", s.Names(), err)
	}
	return nil
}

// extendAll extends locks, with one request unless they are very many.
func (c *Client) extendAll(ctx context.Context, locks []*Lock, d time.Duration) error {
	holds := make([]*hold, len(locks))
	for i, l := range locks {
		holds[i] = l.hold
	}
	for batch := range chunks(holds, batchSize) {
		if err := c.extend(ctx, d, batch...); err != nil {
			return err
		}
	}
	return nil
}

// Release lets go of all locks, side by side. The LockSet's context ends before
// the first of them is free. See [Lock.Release]: the error says so of each lock
// that had been lost before, or whose release is not confirmed; the others are
// released in any case. Further calls do nothing and return the same.
func (s *LockSet) Release() error {
	s.once.Do(func() {
		s.finish(ErrReleased)
		errs := make([]error, len(s.locks))
		s.c.each(len(errs), func(i int) { errs[i] = s.locks[i].Release() })
		s.result = join(errs)
	})
	return s.result
}

// join is errors.Join, but leaves a single error as it is.
func join(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}
