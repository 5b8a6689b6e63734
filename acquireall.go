package holdfast

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// AcquireAll waits until it has the locks of all names, or ctx ends, or Options.Wait is over,
// which bounds the whole call. It then has all of them, or none. Callers with common names
// cannot deadlock, in whatever order they list the names, unless they hold other locks while they
// wait.
//
// All names are tried concurrently, in one round trip where the store supports that. If some
// cannot be acquired, AcquireAll keeps those that sort before the first of these, releases the
// others, waits for that first one, and tries the rest again: a caller never waits for a name
// while it holds a greater one. A lock that is lost while AcquireAll waits for others is acquired
// anew.
//
// The options are those of each lock. MinHold and MaxHold count from the grant of each;
// MaxAttempts counts for each wait; NoRenew begins when all are held, and until then they are
// renewed. The names must differ, and there must be at least one ([ErrInvalid]).
//
// When ctx ends, AcquireAll returns as Acquire does, and goes on releasing in the background.
//
// Errors are those of [Client.Acquire] for the name that could not be acquired. After an error
// none is held.
func (c *Client) AcquireAll(ctx context.Context, names []string, o *Options) (*LockSet, error) {
	return c.acquireAll(ctx, names, o, false)
}

// TryAcquireAll makes one attempt at all names and does not wait. If one of them
// is held, by another goroutine of this Client too, the error is a [HeldError],
// and none is held by this call. The ctx ends it as it ends [Client.AcquireAll].
func (c *Client) TryAcquireAll(ctx context.Context, names []string, o *Options) (*LockSet, error) {
	return c.acquireAll(ctx, names, o, true)
}

// A multiAcquire is one call of AcquireAll or TryAcquireAll.
type multiAcquire struct {
	c             *Client
	callerCtx     context.Context
	ctx           context.Context // callerCtx, bounded by Options.Wait
	names         []string        // sorted
	options       Options         // of each lock
	singleAttempt bool
	waited        bool    // it has waited for a lock
	hasAnswered   bool    // the store has answered
	locks         []*Lock // in the order of names, nil where it is not held
}

func (c *Client) acquireAll(ctx context.Context, names []string, o *Options, singleAttempt bool) (*LockSet, error) {
	names = slices.Sorted(slices.Values(names))
	if err := c.checkNames(names); err != nil {
		return nil, err
	}
	m := &multiAcquire{
		c: c, callerCtx: ctx, ctx: ctx, names: names, locks: make([]*Lock, len(names)),
		options: o.withDefaults(&c.options), singleAttempt: singleAttempt,
	}
	err := c.checkCall(ctx, &m.options)
	if err == nil {
		err = c.beginCall()
	}
	if err != nil {
		return nil, opErrorAll("acquire", names, err)
	}
	defer c.activeCalls.Done()
	if m.options.Wait > 0 && !singleAttempt {
		limited, cancel := context.WithTimeoutCause(ctx, m.options.Wait, errWaitOver)
		defer cancel()
		m.ctx = limited
	}
	noRenew := m.options.NoRenew
	m.options.NoRenew = false
	err = m.acquireAll()
	if err == nil && noRenew {
		err = m.stopAutoRenew()
	}
	if err != nil {
		m.rollBack()
		return nil, err
	}
	return newLockSet(ctx, c, m.locks), nil
}

// checkNames checks sorted names.
func (c *Client) checkNames(names []string) error {
	if len(names) == 0 {
		return fmt.Errorf("holdfast: acquire: %w: no names", ErrInvalid)
	}
	for i, name := range names {
		_, err := c.fullName(name)
		if err == nil && i > 0 && names[i-1] == name {
			err = fmt.Errorf("%w: the name is given twice", ErrInvalid)
		}
		if err != nil {
			return opError("acquire", name, err)
		}
	}
	return nil
}

// acquireAll returns when all locks are held, or with the reason why they cannot be.
func (m *multiAcquire) acquireAll() error {
	for {
		err := m.tryMissing()
		m.hasAnswered = m.hasAnswered || err == nil || errors.Is(err, ErrHeld)
		if lost := m.discardLost(); err == nil {
			err = lost
		}
		missing := slices.Index(m.locks, nil)
		if missing < 0 {
			return nil
		}
		if m.singleAttempt || driver.Permanent(err) {
			return err
		}
		m.discardFrom(missing + 1)
		if err := m.waitForLock(missing); err != nil {
			return err
		}
	}
}

// tryMissing tries to acquire the missing locks without waiting. It returns the error of the
// first that fails.
func (m *multiAcquire) tryMissing() error {
	errs := make([]error, len(m.names))
	m.c.forEachLock(len(errs), func(i int) {
		if m.locks[i] != nil || m.c.inProcess && firstError(errs[:i]) != nil {
			return
		}
		m.locks[i], errs[i] = m.acquireLock(m.ctx, i, true)
	})
	return firstError(errs)
}

// waitForLock waits until lock i is acquired. If a lock already held is lost meanwhile, it
// returns nil, so that acquireAll tries again.
func (m *multiAcquire) waitForLock(i int) error {
	m.waited = true
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	for _, l := range m.locks[:i] {
		defer context.AfterFunc(l.Context(), cancel)()
	}
	lock, err := m.acquireLock(ctx, i, false)
	m.locks[i] = lock
	if ctx.Err() != nil && m.ctx.Err() == nil {
		return nil
	}
	return err
}

// acquireLock acquires lock i.
func (m *multiAcquire) acquireLock(ctx context.Context, i int, singleAttempt bool) (*Lock, error) {
	full, err := m.c.fullName(m.names[i])
	if err != nil {
		return nil, err
	}
	a := &acquireOp{
		c: m.c, ctx: ctx, name: m.names[i], fullName: full,
		options: m.options, singleAttempt: singleAttempt, hasAnswered: m.hasAnswered,
	}
	return a.run()
}

// discardLost discards the locks that are no longer held. It returns the reason of the first.
func (m *multiAcquire) discardLost() error {
	errs := make([]error, len(m.locks))
	for i, l := range m.locks {
		if l == nil || l.Err() == nil {
			continue
		}
		errs[i] = opError("acquire", l.Name(), l.Err())
		l.discard()
		m.locks[i] = nil
	}
	return firstError(errs)
}

// discardFrom discards the locks from the given index on.
func (m *multiAcquire) discardFrom(from int) {
	locks := m.locks[from:]
	m.c.forEachLock(len(locks), func(i int) {
		if locks[i] != nil {
			locks[i].discard()
			locks[i] = nil
		}
	})
}

// rollBack discards all locks. It returns early, and goes on in the background, if the caller's
// context ends.
func (m *multiAcquire) rollBack() {
	done := make(chan struct{})
	m.c.activeCalls.Go(func() {
		m.discardFrom(0)
		close(done)
	})
	select {
	case <-done:
	case <-m.callerCtx.Done():
	}
}

// stopAutoRenew ends the automatic renewal of the locks. If there was a wait, it then extends
// them by their whole TTL.
func (m *multiAcquire) stopAutoRenew() error {
	for _, l := range m.locks {
		if !l.joined {
			l.lease.stopAutoRenew()
		}
	}
	if !m.waited {
		return nil
	}
	err := m.c.extendAll(m.ctx, m.locks, m.options.TTL)
	if err != nil {
		return opErrorAll("acquire", m.names, err)
	}
	return nil
}

// firstError returns the first error that is not nil.
func firstError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// maxParallel is how many requests of one call are in flight at once.
const maxParallel = 64

// forEachLock calls f for 0 to n-1, which each make a request for another lock, and returns when
// all calls have returned. The calls are concurrent, so that a store can serve them in one round
// trip, unless there is none.
func (c *Client) forEachLock(n int, f func(i int)) {
	if c.inProcess || n == 1 {
		for i := range n {
			f(i)
		}
		return
	}
	var group sync.WaitGroup
	sem := make(chan struct{}, maxParallel)
	for i := range n {
		sem <- struct{}{}
		group.Go(func() {
			f(i)
			<-sem
		})
	}
	group.Wait()
}
