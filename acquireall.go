package holdfast

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// AcquireAll waits until it has the locks of all names, or ctx ends, or Options.Wait is over, which
// bounds all its waits together. It then has all of them, or none. Callers with common names cannot
// deadlock, in whatever order they list the names, unless they hold other locks while they wait.
//
// The locks are acquired one after the other, sorted by name, so a caller never waits for a name
// while it holds a greater one. If one is lost while AcquireAll waits for another, all are released
// after that wait, and it begins anew. When ctx ends or Wait is over, it returns when it has
// released what it has got, as by [Lock.Release].
//
// The options are those of each lock. MaxHold counts from the grant of each. MaxAttempts counts for
// each wait. NoRenew, a name that is given twice, and no names are refused ([ErrInvalid]).
//
// Errors are those of [Client.Acquire] for the name that could not be acquired. After an error none
// is held.
func (c *Client) AcquireAll(ctx context.Context, names []string, o *Options) (*LockSet, error) {
	return c.acquireAll(ctx, names, o, opAcquire)
}

// TryAcquireAll makes one attempt at all names and does not wait. If one of them is held, by
// another goroutine of this Client too, the error is a [HeldError]; if one was lost before the last
// was acquired, a [LostError]. None is held by this call then. The ctx ends it as it ends
// [Client.AcquireAll].
func (c *Client) TryAcquireAll(ctx context.Context, names []string, o *Options) (*LockSet, error) {
	return c.acquireAll(ctx, names, o, opTry)
}

func (c *Client) acquireAll(ctx context.Context, names []string, o *Options, op string) (*LockSet, error) {
	names = slices.Sorted(slices.Values(names))
	options := Options{}
	if o != nil {
		options = *o
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("holdfast: acquire: %w: no names", ErrInvalid)
	}
	for i, name := range names[1:] {
		if name == names[i] {
			return nil, opError("acquire", name, fmt.Errorf("%w: the name is given twice", ErrInvalid))
		}
	}
	if options.NoRenew {
		return nil, opErrorAll("acquire", names, fmt.Errorf("%w: NoRenew of several locks, of which the first could end before the last is held", ErrInvalid))
	}
	err := c.begin(ctx, &options, names...)
	if err != nil {
		return nil, opErrorAll("acquire", names, err)
	}
	defer c.activeCalls.Done()
	if options.Wait > 0 && op != opTry {
		limited, cancel := context.WithTimeoutCause(ctx, options.Wait, errWaited(options.Wait))
		defer cancel()
		ctx = limited
	}
	options.Wait = 0 // of each
	for {
		var locks []*Lock
		for i := 0; i < len(names) && err == nil; i++ {
			var lock *Lock
			if lock, err = (&lease{c: c, op: op, further: i > 0}).acquire(ctx, names[i], &options); err == nil {
				locks = append(locks, lock)
			}
		}
		if err == nil {
			set := &LockSet{locks: locks, lockContext: lockContext{c: c, valuesCtx: ctx}}
			for _, l := range locks {
				l.cancelWith(func(reason error) { set.endContext(&reason) })
			}
			if err = set.Err(); err == nil { // None was lost meanwhile.
				return set, nil
			}
			err = opErrorAll("acquire", names, err)
		}
		_ = releaseEach(locks, (*Lock).Release)
		if op == opTry || !errors.Is(err, ErrLost) && !errors.Is(err, ErrReleased) {
			return nil, err
		}
		err = nil
	}
}

// releaseEach calls release for each of the holds, and joins the errors. The calls are concurrent,
// so that a store can serve many in one round trip.
func releaseEach[T any](holds []T, release func(T) error) error {
	var group sync.WaitGroup
	sem, errs := make(chan struct{}, 64), make([]error, len(holds))
	for i, hold := range holds {
		sem <- struct{}{}
		group.Go(func() {
			errs[i] = release(hold)
			<-sem
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// A LockSet is a handle on several locks that were acquired together, by [Client.AcquireAll]. It is
// held as long as all of them are. Its methods may be called from any goroutine, and before and
// after Release. It must not be copied.
type LockSet struct {
	lockContext
	locks []*Lock // sorted by name
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

// Deadline returns the earliest deadline of the locks: until then all of them are held, whatever
// happens to the network. See [Lock.Deadline].
func (s *LockSet) Deadline() time.Time {
	first := slices.MinFunc(s.locks, func(a, b *Lock) int { return a.Deadline().Compare(b.Deadline()) })
	return first.Deadline()
}

// Err returns nil while all of the locks are held. After that it returns the reason of the end, for
// ever: the [LostError] of the lock that was lost, or [ErrReleased] after Release. It reads the
// clock each time, as [Lock.Err] does. The locks that were not lost are held until Release.
func (s *LockSet) Err() error {
	if end := s.contextErr(); end != nil {
		return end
	}
	for _, l := range s.locks {
		_ = l.Err() // It ends the context of the set if the deadline has passed.
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.contextErr()
}

// Context returns a context that ends when any of the locks is no longer held, with Err's value as
// its context.Cause; see [Lock.Context].
func (s *LockSet) Context() context.Context {
	_ = s.Err()
	return s.context()
}

// Release releases all locks, concurrently. The LockSet's context ends before the first of them is
// free. See [Lock.Release]: the error contains each lock that had been lost before, or has an
// unconfirmed release; the others are released in any case. Further calls do nothing and return the
// same.
func (s *LockSet) Release() error { return s.release(0, false) }

func (s *LockSet) release(_ time.Duration, byDo bool) error {
	return releaseEach(s.locks, func(l *Lock) error { return l.release(0, byDo) })
}
