package holdfast

import (
	"context"
	"maps"
	"sync"
	"time"
)

// A Lock is a handle on a lock that was acquired. Its methods may be called
// from any goroutine, and before and after Release. It must not be copied.
type Lock struct {
	hold   *hold
	next   *Lock // of the same hold
	joined bool  // it is not the first of its hold
	life

	once   sync.Once
	result error // of Release
}

// Name returns the name of the lock, without the Client's prefix.
func (l *Lock) Name() string { return l.hold.c.strip(l.hold.full) }

// Token returns the fencing token: greater than that of every earlier hold of
// this name, and the same for as long as this hold lasts. Hand it to the
// resource that the lock protects, and let the resource refuse a token smaller
// than one it has seen: then a holder that was paused past its deadline can do
// no harm. It is 0 if the store gives no tokens (Guarantees().Fencing).
func (l *Lock) Token() int64 { return l.hold.token }

// Holder returns the public name under which the lock is held: that of the
// Client, but of an adopted lock that of the Client which acquired it ("" if the
// store cannot tell).
func (l *Lock) Holder() string {
	if l.hold.adopted {
		return l.hold.holder
	}
	return l.hold.c.holder
}

// Metadata returns what Options.Metadata held when the lock was acquired.
func (l *Lock) Metadata() map[string]string { return maps.Clone(l.hold.metadata) }

// Deadline returns the time until which the lock is ours whatever happens to
// the network, unless somebody breaks it by force. Renewals move it. It carries
// a monotonic reading; it was reckoned from the moment before the request was
// sent, with a margin for drift.
func (l *Lock) Deadline() time.Time {
	return l.hold.c.clock.time(time.Duration(l.hold.deadline.Load()))
}

// Err returns nil while the lock is held. After that it returns, for ever, why
// it is not: a [LostError], [ErrReleased] after Release, or [ErrHandedOver]. It
// reads the clock each time, so it is right at once after the process was
// paused, when timers and the Context are not yet. Between a nil from Err and the
// act that it was to guard a process can still be paused: only the token protects
// against that.
func (l *Lock) Err() error {
	if end := l.ended(); end != nil {
		return end
	}
	return l.hold.err()
}

// Context returns a context that ends when the lock is no longer held, with
// Err's value as its context.Cause. It has the values of the context that
// Acquire was given, but not its end. Its end is announced by a timer and so
// may come a moment late after a pause of the process; see [Lock.Err].
func (l *Lock) Context() context.Context {
	return l.context(l.Err())
}

// Extend makes the lock last at least until d from now, as the store counts it;
// it never shortens. Automatic renewal goes on as before. Use it with
// Options.NoRenew, or before a stretch in which the process cannot renew.
// d has the bounds of Options.TTL; MaxHold is not exceeded.
//
// If it fails with ErrUnavailable the lock may or may not have been extended,
// and is held at least until Deadline. Other errors are those of [Lock.Err].
func (l *Lock) Extend(ctx context.Context, d time.Duration) error {
	if err := checkTTL(d); err != nil {
		return failed("extend", l.Name(), err)
	}
	if err := l.Err(); err != nil {
		return failed("extend", l.Name(), err)
	}
	c := l.hold.c
	if err := c.begin(); err != nil {
		return failed("extend", l.Name(), err)
	}
	defer c.active.Done()
	if err := c.extend(ctx, d, l.hold); err != nil {
		return failed("extend", l.Name(), err)
	}
	return nil
}

// Release lets go of the lock, unless it was handed over. It takes no context: it is right to defer it, and
// it works when every context has ended. The Lock's context ends first; a
// renewal under way is awaited, so that nothing is written after Release has
// returned. It is bounded by a few request timeouts.
//
// It returns nil if the store confirmed the release; a [LostError] if the lock
// had been lost before; and ErrUnavailable if the store did not confirm: then
// the release is tried on in the background, until the TTL has freed the lock
// in any case. Further calls do nothing and return the same.
func (l *Lock) Release() error {
	l.once.Do(func() { l.result = l.release() })
	return l.result
}

func (l *Lock) release() error {
	h := l.hold
	end := h.err()
	last := h.drop()
	l.finish(ErrReleased)
	if last {
		return h.release()
	}
	return end
}

// undo releases a handle as if it had never been acquired.
func (l *Lock) undo() {
	l.once.Do(func() {
		last := l.hold.drop()
		l.finish(errGivenUp)
		switch {
		case !last:
		case l.joined: // others have held it, and MinHold is theirs
			_ = l.hold.err()
			l.result = l.hold.release()
		default:
			l.hold.undo()
		}
	})
}
