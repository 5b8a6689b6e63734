package holdfast

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// AcquireAll waits until it has the locks of all names, or ctx ends, or
// Options.Wait is over, which bounds the whole of it. It has all of them then,
// or none. Callers whose names overlap cannot end in a deadlock, in whatever
// order they give them, unless they hold other locks while they wait.
//
// All names are tried side by side, which is one round trip where the store can.
// If some cannot be had, AcquireAll keeps those that sort before the first of
// these, gives back the others, waits for that first one, and tries the rest
// again: nobody ever waits for a name while he holds a greater one. What is lost
// while it waits for others is acquired anew.
//
// The options are those of each lock. MinHold and MaxHold count from the grant
// of each; MaxAttempts counts for each wait; NoRenew begins when all are held,
// and until then they are renewed. The names must differ, and there must be one
// at least ([ErrInvalid]).
//
// Errors are those of [Client.Acquire] for the name that could not be had. After
// an error none is held.
func (c *Client) AcquireAll(ctx context.Context, names []string, o *Options) (*LockSet, error) {
	return c.acquireAll(ctx, names, o, false)
}

// TryAcquireAll makes one attempt at all names and does not wait. If one of them
// is held, by another goroutine of this Client too, the error is a [HeldError],
// and none is held by this call. The ctx bounds the requests.
func (c *Client) TryAcquireAll(ctx context.Context, names []string, o *Options) (*LockSet, error) {
	return c.acquireAll(ctx, names, o, true)
}

// A gathering is one call of AcquireAll or TryAcquireAll.
type gathering struct {
	c      *Client
	caller context.Context
	ctx    context.Context // ends with the caller's patience
	names  []string        // sorted
	o      Options         // of each lock
	try    bool
	waited bool
	locks  []*Lock // by name, nil where it is not held
}

func (c *Client) acquireAll(ctx context.Context, names []string, o *Options, try bool) (*LockSet, error) {
	names = slices.Sorted(slices.Values(names))
	if err := c.checkAll(names); err != nil {
		return nil, err
	}
	g := &gathering{c: c, caller: ctx, ctx: ctx, names: names, o: o.with(&c.options), try: try, locks: make([]*Lock, len(names))}
	if err := c.admit(ctx, &g.o); err != nil {
		return nil, failedAll("acquire", names, err)
	}
	defer c.active.Done()
	if g.o.Wait > 0 && !try {
		limited, cancel := context.WithTimeout(ctx, g.o.Wait)
		defer cancel()
		g.ctx = limited
	}
	leaveRenewal := g.o.NoRenew
	g.o.NoRenew = false
	err := g.run()
	if err == nil && leaveRenewal {
		err = g.leaveRenewal()
	}
	if err != nil {
		g.giveUp()
		return nil, err
	}
	return newLockSet(ctx, c, g.locks), nil
}

// checkAll checks sorted names.
func (c *Client) checkAll(names []string) error {
	if len(names) == 0 {
		return fmt.Errorf("holdfast: acquire: %w: no names", ErrInvalid)
	}
	for i, name := range names {
		_, err := c.full(name)
		if err == nil && i > 0 && names[i-1] == name {
			err = fmt.Errorf("%w: the name is given twice", ErrInvalid)
		}
		if err != nil {
			return failed("acquire", name, err)
		}
	}
	return nil
}

// run returns when all locks are held, or with the reason why they will not be.
func (g *gathering) run() error {
	for {
		err := g.tryMissing()
		if lost := g.dropLost(); err == nil {
			err = lost
		}
		missing := slices.Index(g.locks, nil)
		if missing < 0 {
			return nil
		}
		if g.try || driver.Permanent(err) {
			return err
		}
		g.undo(missing + 1)
		if err := g.wait(missing); err != nil {
			return err
		}
	}
}

// tryMissing tries what is missing, without waiting, and returns the error of
// the first that cannot be had.
func (g *gathering) tryMissing() error {
	errs := make([]error, len(g.names))
	g.c.each(len(errs), func(i int) {
		if g.locks[i] != nil || g.c.inline && anyOf(errs[:i]) != nil {
			return
		}
		g.locks[i], errs[i] = g.acquire(g.ctx, i, true)
	})
	return anyOf(errs)
}

// wait waits for one lock, and no longer than those before it are held. That it
// was in vain for one of them being lost is no error.
func (g *gathering) wait(i int) error {
	g.waited = true
	ctx, cancel := context.WithCancel(g.ctx)
	defer cancel()
	for _, l := range g.locks[:i] {
		defer context.AfterFunc(l.Context(), cancel)()
	}
	lock, err := g.acquire(ctx, i, false)
	g.locks[i] = lock
	if ctx.Err() != nil && g.ctx.Err() == nil {
		return nil
	}
	return err
}

func (g *gathering) acquire(ctx context.Context, i int, try bool) (*Lock, error) {
	full, err := g.c.full(g.names[i])
	if err != nil {
		return nil, err
	}
	a := &acquisition{c: g.c, ctx: ctx, name: g.names[i], full: full, o: g.o, try: try}
	return a.run(g.caller)
}

// dropLost forgets locks that are no longer held, and returns the reason of the
// first.
func (g *gathering) dropLost() error {
	errs := make([]error, len(g.locks))
	for i, l := range g.locks {
		if l == nil || l.Err() == nil {
			continue
		}
		errs[i] = failed("acquire", l.Name(), l.Err())
		l.undo()
		g.locks[i] = nil
	}
	return anyOf(errs)
}

// undo gives back the locks from the i-th on.
func (g *gathering) undo(from int) {
	locks := g.locks[from:]
	g.c.each(len(locks), func(i int) {
		if locks[i] != nil {
			locks[i].undo()
			locks[i] = nil
		}
	})
}

// giveUp gives back all locks. Who is no longer interested does not wait for it.
func (g *gathering) giveUp() {
	if g.c.inline {
		g.undo(0)
		return
	}
	done := make(chan struct{})
	g.c.active.Go(func() {
		g.undo(0)
		close(done)
	})
	select {
	case <-done:
	case <-g.caller.Done():
	}
}

// leaveRenewal leaves it to the holder to renew the locks, which have their
// whole TTL before them.
func (g *gathering) leaveRenewal() error {
	for _, l := range g.locks {
		if !l.joined {
			l.hold.leaveRenewal()
		}
	}
	if !g.waited {
		return nil
	}
	err := g.c.extendAll(g.ctx, g.locks, g.o.TTL)
	if err != nil {
		return failedAll("acquire", g.names, err)
	}
	return nil
}

// anyOf returns the first error that is one.
func anyOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
