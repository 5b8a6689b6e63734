package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A Lock is a handle on a lock that was acquired. Its methods may be called from any goroutine, and
// before and after Release. It must not be copied.
//
// A program that holds a lock keeps its Lock: the Client renews a lock also after its Lock has been
// garbage-collected.
type Lock struct {
	lease *lease
	lockContext

	working bool // Do runs work under it, and will release it; Client.mu guards it
}

// Name returns the name of the lock, without the Client's prefix.
func (l *Lock) Name() string { return l.c.stripPrefix(l.lease.name) }

// FullName returns the name of the lock in the store, with the Client's prefix.
func (l *Lock) FullName() string { return l.lease.name }

// Token returns the fencing token: greater than that of every earlier hold of this name, and the
// same for as long as this hold lasts. Pass it to the resource that the lock protects, and let the
// resource refuse a token smaller than one it has seen: then a holder that was paused past its
// deadline can do no harm. It is 0 if the store gives no tokens (Guarantees().Fencing).
//
// Of a nil Lock it is 0: FromContext(ctx).Token() outside of the work of Do is a token that every
// resource refuses which has seen another.
func (l *Lock) Token() int64 {
	if l == nil || l.lease == nil {
		return 0
	}
	return l.lease.tokens.own
}

// Holder returns the public name under which the lock is held: that of the Client, but of an
// adopted lock that of the Client which acquired it.
func (l *Lock) Holder() string {
	if t := l.lease.ticket; t != nil {
		return t.Holder
	}
	return l.c.config.Holder
}

// Metadata returns the metadata of the acquisition: of Options, or else of Config. That of an
// adopted lock is what its ticket tells.
func (l *Lock) Metadata() map[string]string { return maps.Clone(l.lease.options.Metadata) }

// Deadline returns the time until which the lock is held whatever happens to the network, unless it
// is broken by force. Renewals move it. It carries a monotonic reading. It counts from the moment
// before the request was sent, with a margin for drift.
func (l *Lock) Deadline() time.Time {
	return l.c.clock.time(time.Duration(l.lease.deadline.Load()))
}

// Since returns when this Client got the lock: when it received the grant, when the lock was passed
// on, or, of an adopted lock, the proof that the hold lasts. It carries a monotonic reading, so
// that time.Since of it is right after a step of the wall clock, too.
func (l *Lock) Since() time.Time { return l.c.clock.time(l.lease.since) }

// String returns the name and the token, for messages.
func (l *Lock) String() string {
	return fmt.Sprintf("lock %q (token %d)", l.Name(), l.Token())
}

// LogValue implements [slog.LogValuer]: a group of name, token, holder and deadline.
func (l *Lock) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("name", l.Name()),
		slog.Int64("token", l.Token()),
		slog.String("holder", l.Holder()),
		slog.Time("deadline", l.Deadline()),
	)
}

// Err returns nil while the lock is held. After that it returns the reason of the end, for ever: a
// [LostError], [ErrReleased] after Release, or [ErrHandedOver]. It reads the clock each time, so it
// is right at once after the process was paused, when timers and the Context are not yet. A process
// can still be paused between a nil from Err and the act that it guards: only the token protects
// against that.
func (l *Lock) Err() error {
	if l.contextErr() == nil {
		l.lease.checkDeadline() // It ends the contexts.
	}
	return l.contextErr()
}

// Context returns a context that ends when the lock is no longer held, with Err's value as its
// context.Cause. It has the values of the context that was passed to Acquire, but not its end. A
// timer ends it, so the end may come a moment late after a pause of the process; see [Lock.Err].
func (l *Lock) Context() context.Context {
	_ = l.Err() // It ends the context if the deadline has passed.
	return l.context()
}

// Extend makes the lock last at least until d from now, as the store counts it; it never shortens.
// Automatic renewal goes on as before. Use it with Options.NoRenew, or before a period in which the
// process cannot renew. d has the bounds of Options.TTL; MaxHold is not exceeded. The ctx ends it
// as it ends [Client.Acquire].
//
// If it fails with ErrUnavailable the lock may or may not have been extended, and is held at least
// until Deadline. Other errors are those of [Lock.Err].
func (l *Lock) Extend(ctx context.Context, d time.Duration) error {
	c := l.c
	err := cmp.Or(checkTTL(d), l.Err())
	if err == nil {
		err = c.begin(ctx, nil)
	}
	if err != nil {
		return opError("extend", l.Name(), err)
	}
	defer c.activeCalls.Done()
	c.mu.Lock()
	if err = l.contextErr(); err == nil {
		l.lease.inFlight++
	}
	c.mu.Unlock()
	if err == nil {
		unknown := c.renewLeases(ctx, d, []*lease{l.lease})
		err = cmp.Or(l.Err(), unknown)
	}
	if err != nil {
		err = opError("extend", l.Name(), err)
	}
	return err
}

// Release releases the lock, unless it was handed over. It takes no context, so that it can be
// deferred and works when every context has ended. The Lock's context ends first. Release waits for
// a renewal in flight, so that nothing prolongs the lock after Release has returned. It does not
// wait for work that [Lock.Do] runs. Release is bounded by a few request timeouts.
//
// It returns nil if the store confirmed that it had the lock until now, or the lock was passed on
// to another goroutine of this Client (see Config.LocalTurn); a [LostError] if the store had it no
// longer, or Err or the Context have shown its loss; and ErrUnavailable if the store did not
// confirm: then the release is retried in the background, until the TTL has freed the lock in any
// case. If a request got no answer, Release cannot tell "released by it" from "lost before", and
// returns nil. While ReleaseAll or Close waits for work under Do, that Do alone releases the lock,
// and Release returns nil. Further calls do nothing and return the same.
func (l *Lock) Release() error { return l.release(0, false) }

// release releases the Lock, and the lease with its last Lock. With keep the name stays taken for
// that long; then there must be no other. Further calls wait for the first, and return the same.
// While ReleaseAll waits for work under the Lock, only the Do of that work releases it.
func (l *Lock) release(keep time.Duration, byDo bool) error {
	lease, c := l.lease, l.c
	var keepUntil time.Duration
	if keep > 0 {
		keepUntil = c.clock.now() + keep
	}
	c.mu.Lock()
	l.working = l.working && !byDo
	i, others, pass := slices.Index(lease.locks, l), len(lease.locks) > 1, lease.state == held
	switch {
	case i < 0, lease.state == winding && !byDo: // It was released, or ReleaseAll waits for work.
	case others && keep > 0:
		c.mu.Unlock()
		return opError("release", l.Name(), fmt.Errorf("%w: it has other handles", ErrInvalid))
	case others:
		lease.locks = slices.Delete(lease.locks, i, i+1)
		l.endContext(&ErrReleased)
	case lease.end(&ErrReleased):
		return lease.giveBack(keepUntil, pass)
	case errors.Is(l.contextErr(), ErrLost):
		lease.locks = nil // It is released once.
		if !errors.Is(l.contextErr(), ErrTaken) && !c.closed {
			lease.releaseInBackground(keepUntil, false)
		}
	case keep == 0: // It was released, or handed over.
		c.mu.Unlock()
		return lease.awaitFinish()
	}
	end := l.contextErr()
	c.mu.Unlock()
	switch {
	case errors.Is(end, ErrLost):
		return end
	case keep > 0:
		return opError("release", l.Name(), end)
	}
	return nil
}

// ReleaseKeep releases the lock as Release does, and keeps the name taken: nobody can acquire it
// until d after the call, by the clock of the store. So work runs at most once in a time, also
// among replicas with different clocks, unless its holder dies or is cut off: the name is free when
// the TTL is over then. A TTL of d or more closes that, and so does package once. It asks
// for the keep also after [Options].MaxHold has ended the hold, within the TTL.
//
// It returns nil if the store has confirmed it. After any other error the name may be free: errors
// are those of Release, [ErrReleased] if the lock had been released before, [ErrInvalid] if d is
// not between driver.MinTTL and driver.MaxTTL or the lock has other handles, and [ErrUnsupported]
// if the store does not keep names (Guarantees().Keep). After ErrInvalid and ErrUnsupported the
// lock is held as before.
func (l *Lock) ReleaseKeep(d time.Duration) error {
	switch {
	case !l.c.guarantees.Keep:
		return opError("release", l.Name(), ErrUnsupported)
	case d < driver.MinTTL || d > driver.MaxTTL:
		return opError("release", l.Name(), fmt.Errorf("%w: to keep it for %v is not between %v and %v", ErrInvalid, d, driver.MinTTL, driver.MaxTTL))
	}
	return l.release(d, false)
}

// A lockContext is the context of a handle, which is made when it is asked for. It ends in the step
// that ends the hold, or this handle on it.
type lockContext struct {
	c         *Client
	valuesCtx context.Context       // the context of the acquisition, for its values
	endReason atomic.Pointer[error] // nil before the end
	made      sync.Once
	ctx       context.Context
	cancels   []context.CancelCauseFunc // of ctx, of work of Do, of a LockSet; Client.mu guards them
}

// contextErr returns the reason of the end, nil before.
func (lc *lockContext) contextErr() error {
	if reason := lc.endReason.Load(); reason != nil {
		return *reason
	}
	return nil
}

// endContext ends the context. Only the first call has an effect. The caller holds c.mu.
func (lc *lockContext) endContext(reason *error) {
	if lc.endReason.CompareAndSwap(nil, reason) {
		for _, cancel := range lc.cancels {
			cancel(*reason)
		}
	}
}

// cancelWith has cancel called with the reason when the context ends.
func (lc *lockContext) cancelWith(cancel context.CancelCauseFunc) {
	lc.c.mu.Lock()
	defer lc.c.mu.Unlock()
	lc.cancels = append(lc.cancels, cancel)
	if reason := lc.contextErr(); reason != nil {
		cancel(reason)
	}
}

// context returns the context of the handle.
func (lc *lockContext) context() context.Context {
	lc.made.Do(func() {
		ctx, cancel := context.WithCancelCause(context.WithoutCancel(lc.valuesCtx))
		lc.ctx = ctx
		lc.cancelWith(cancel)
	})
	return lc.ctx
}
