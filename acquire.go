package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Acquire waits until it has the lock, or ctx ends, or Options.Wait or
// Options.MaxAttempts is used up. The ctx bounds the waiting only; how the hold
// ends is told by [Lock.Context].
//
// Callers of one Client are served first come first served. Whoever is first
// waits for whatever comes first: word from the store that the lock was
// released, the end of the holder's time, or a pause (see [Backoff]).
//
// Errors: [ErrHeld] with a [HeldError] if the lock was held throughout, joined
// with ctx.Err() (or context.DeadlineExceeded, for Wait) where a wait was cut
// short; [ErrUnavailable], [ErrInvalid], [ErrUnsupported], [ErrCorrupt],
// [ErrClosed]. After an error nothing is held: if the store may have granted the
// lock all the same, it is given back in the background.
func (c *Client) Acquire(ctx context.Context, name string, o *Options) (*Lock, error) {
	return c.acquire(ctx, name, o, false)
}

// TryAcquire makes one attempt and does not wait. If the lock is held, by
// another goroutine of this Client too, the error is a [HeldError]. The ctx
// bounds the request.
func (c *Client) TryAcquire(ctx context.Context, name string, o *Options) (*Lock, error) {
	return c.acquire(ctx, name, o, true)
}

// errGivenUp is the end of a hold that never came about.
var errGivenUp = errors.New("acquisition given up")

// An acquisition is one call of Acquire or TryAcquire.
type acquisition struct {
	c     *Client
	ctx   context.Context // ends with the caller's patience
	name  string
	full  string
	o     Options
	try   bool
	began time.Duration // when it first asked, or began to wait in line; 0 before
	waits bool          // the hooks were told that it waits
	last  error         // what was last in the way
}

func (c *Client) acquire(ctx context.Context, name string, o *Options, try bool) (*Lock, error) {
	full, err := c.full(name)
	if err != nil {
		return nil, failed("acquire", name, err)
	}
	a := &acquisition{c: c, ctx: ctx, name: name, full: full, o: o.with(&c.options), try: try}
	if err := c.admit(ctx, &a.o); err != nil {
		return nil, failed("acquire", name, err)
	}
	defer c.active.Done()
	if a.o.Wait > 0 && !try {
		limited, cancel := context.WithTimeout(ctx, a.o.Wait)
		defer cancel()
		a.ctx = limited
	}
	return a.run(ctx)
}

// admit checks the options of a call, and registers it.
func (c *Client) admit(ctx context.Context, o *Options) error {
	if err := o.check(c.can); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.begin()
}

// run returns a lock whose contexts have the values of ctx.
func (a *acquisition) run(ctx context.Context) (*Lock, error) {
	lock, err := a.obtain()
	if lock != nil {
		lock.values = ctx
	}
	a.done(lock, err)
	return lock, err
}

func (a *acquisition) obtain() (*Lock, error) {
	for {
		shared, err := a.enter()
		if err != nil {
			return nil, a.fail(err)
		}
		if shared == nil {
			return a.take()
		}
		lock, err := shared.join(a.ctx)
		if err == nil {
			return lock, nil
		}
		if shared.end.Load() == nil {
			return nil, a.fail(err)
		}
	}
}

// take asks the store until it grants the lock or the acquisition is over. The
// caller has the turn; take gives it up if it fails.
func (a *acquisition) take() (*Lock, error) {
	g := a.newGrant()
	err := a.attempts(g)
	if err == nil {
		return &g.lock, nil
	}
	g.hold.undone.Store(true)
	g.hold.end.Store(&errGivenUp)
	if !g.hold.open {
		a.c.leave(a.full)
		return nil, a.fail(err)
	}
	c, full := a.c, a.full
	c.active.Go(func() {
		g.hold.disown()
		c.leave(full)
	})
	return nil, a.fail(err)
}

// attempts makes attempts for g until one succeeds.
func (a *acquisition) attempts(g *grant) error {
	v := vigil{c: a.c, ctx: a.ctx, full: a.full}
	defer v.end()
	patience := patience{c: a.c, once: a.try}
	for busy := 1; ; {
		res, sent, err := a.attempt(&g.hold)
		if err == nil && res.Granted {
			if err = g.hold.start(sent, res.Token); err == nil {
				return nil
			}
			sent = a.c.clock.now() // a suspend meanwhile is no failure of the store
		}
		if err != nil {
			a.failed(err)
			if err := patience.bear(a.ctx, sent, err); err != nil {
				return err
			}
			if err := v.pause(); err != nil {
				return err
			}
			continue
		}
		patience.answered()
		a.found(res.Held)
		if a.try || busy == a.o.MaxAttempts {
			return a.last
		}
		busy++
		a.contended()
		if v.watch() {
			continue // the release may have come before the watch
		}
		if err := v.wait(res.Held.Remaining); err != nil {
			return err
		}
	}
}

// attempt sends one request, and reports when.
func (a *acquisition) attempt(h *hold) (driver.AcquireResult, time.Duration, error) {
	c := a.c
	req := driver.AcquireRequest{
		Name:     a.full,
		Owner:    h.owner,
		Holder:   c.holder,
		TTL:      a.o.TTL,
		Metadata: a.o.Metadata,
		Detached: a.o.Detached,
		Patient:  true,
	}
	var res driver.AcquireResult
	var err error
	sent := c.clock.now()
	if a.began == 0 {
		a.began = sent
	}
	limit := min(c.timeout, a.o.TTL)
	switch {
	case c.inline:
		res, err = c.store.Acquire(a.ctx, req)
	case c.can.Blocking == driver.BlocksToContext:
		req.Patient = a.ctx.Done() == nil
		res, err = askHere(a.ctx, limit, func(ctx context.Context) (driver.AcquireResult, error) {
			return c.store.Acquire(ctx, req)
		})
	default:
		res, err = h.attempt(a.ctx, limit, req)
	}
	if err != nil && !driver.NotApplied(err) || res.Granted {
		h.open = true
	}
	return res, sent, err
}

// attempt sends a request that may be answered after all is over.
func (h *hold) attempt(ctx context.Context, limit time.Duration, req driver.AcquireRequest) (driver.AcquireResult, error) {
	late := func() {
		if end := h.end.Load(); end != nil && *end != ErrHandedOver {
			h.disown() // it may have been granted all the same
		}
	}
	return ask(h.c, ctx, limit, late, func(ctx context.Context) (driver.AcquireResult, error) {
		return h.c.store.Acquire(ctx, req)
	})
}

// found notes who is in the way, for errors and for others in line.
func (a *acquisition) found(held driver.Record) {
	held.Name = a.name
	seen := &HeldError{Record: held}
	a.last = seen
	a.c.mu.Lock()
	a.c.slots[a.full].seen = seen
	a.c.mu.Unlock()
}

// failed notes that the store has failed. That the wait is over is no news of the
// store, but that it never answered is.
func (a *acquisition) failed(err error) {
	switch {
	case a.ctx.Err() == nil:
		a.last = storeError(a.ctx, err)
	case a.last == nil:
		a.last = fmt.Errorf("%w: it has not answered yet", ErrUnavailable)
	}
}

// contended tells the hooks, once, that the acquisition has to wait.
func (a *acquisition) contended() {
	if a.waits {
		return
	}
	a.waits = true
	if hook := a.c.hooks.Contended; hook != nil {
		var held *HeldError
		if errors.As(a.last, &held) {
			hook(a.name, held.Record)
		}
	}
}

// done tells hooks and log how the acquisition ended.
func (a *acquisition) done(lock *Lock, err error) {
	c := a.c
	if c.log == nil && c.hooks.Waited == nil && c.hooks.Acquired == nil {
		return
	}
	took := c.clock.now() - a.began
	if a.waits && c.hooks.Waited != nil {
		c.hooks.Waited(a.name, took, err)
	}
	if err != nil {
		return
	}
	if c.hooks.Acquired != nil {
		c.hooks.Acquired(a.name, lock.Token(), took)
	}
	if c.log != nil {
		c.log.DebugContext(a.ctx, "lock acquired", "name", a.name, "token", lock.Token(), "waited", took)
	}
}

// fail gives the error of an acquisition its final form.
func (a *acquisition) fail(err error) error {
	if cut := a.ctx.Err(); cut != nil && errors.Is(err, cut) {
		err = &waitError{waited: a.c.clock.now() - a.began, cut: cut, last: a.last}
	}
	return failed("acquire", a.name, err)
}

// patience decides how long a caller bears with a store that fails.
type patience struct {
	c       *Client
	once    bool          // he does not wait, and only wants to learn the outcome
	reached bool          // the store has answered before
	failing bool          // it has not answered since
	since   time.Duration // when the failing began
}

func (p *patience) answered() { p.reached, p.failing = true, false }

// bear returns nil if the caller should try again after err, which came of a
// request sent then, and else the error to report.
func (p *patience) bear(ctx context.Context, sent time.Duration, err error) error {
	if !p.failing {
		p.failing, p.since = true, sent
	}
	if cut := ctx.Err(); cut != nil {
		return cut
	}
	limit := p.c.outage
	if p.once {
		limit = 2 * p.c.timeout // once more, to learn the outcome
	}
	refused := driver.NotApplied(err) && (p.once || !p.reached)
	if driver.Permanent(err) || refused || p.c.clock.now()-p.since >= limit {
		return storeError(ctx, err)
	}
	return nil
}
