package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// release ends the lease and releases it in the store, once.
func (l *lease) release() error {
	l.releaseOnce.Do(func() { l.releaseErr = l.endAndRelease() })
	return l.releaseErr
}

// endAndRelease does the work of release. The caller has called checkHeld just before.
func (l *lease) endAndRelease() error {
	if l.endReason.Load() == nil {
		l.endLease(&ErrReleased)
	}
	switch end := *l.endReason.Load(); {
	case errors.Is(end, ErrReleased):
		return l.releaseAndReport()
	case errors.Is(end, ErrHandedOver):
		return nil
	default:
		if !l.hasTicket() {
			l.releaseAsync()
		}
		return end
	}
}

// discard ends a lease as if it had never been granted: without MinHold.
func (l *lease) discard() {
	l.releaseOnce.Do(func() {
		l.discarded.Store(true)
		if l.checkHeld() == nil {
			l.endLease(&errDiscarded)
		}
		if errors.Is(*l.endReason.Load(), ErrLost) {
			l.releaseAsync()
		} else {
			_ = l.releaseAndReport() // if it fails, it is retried in the background
		}
	})
}

// releaseAndReport releases a lease that its holder has ended.
func (l *lease) releaseAndReport() error {
	if l.passOn() {
		l.reportReleased(nil)
		return nil
	}
	l.waitIdle()
	err := l.releaseWithRetry()
	l.unregister()
	l.reportReleased(err)
	return err
}

// hasTicket reports whether other processes may have the lease as well, by a ticket. A lease that
// is lost here may not be lost there.
func (l *lease) hasTicket() bool {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.ticketIssued
}

// reportReleased notifies the hooks and the log of a release.
func (l *lease) reportReleased(err error) {
	c := l.c
	if l.unreported.Load() || c.log == nil && c.hooks.Released == nil {
		return
	}
	name, held := c.stripPrefix(l.fullName), c.clock.now()-l.grantedAt
	if err != nil {
		c.logWarning(context.Background(), "release not confirmed", name, err)
	} else if c.log != nil {
		c.log.Debug("lock released", "name", name, "token", l.token, "held", held)
	}
	if c.hooks.Released != nil {
		c.hooks.Released(name, held, err)
	}
}

// releaseWithRetry sends releases until the store has confirmed one. After the request timeout it
// returns, and the release goes on in the background.
func (l *lease) releaseWithRetry() error {
	c := l.c
	var began time.Duration
	applied := false // an earlier attempt may have been applied
	for n := 0; ; n++ {
		sent := c.clock.now()
		ours, err := l.sendRelease()
		if err == nil && !ours && !applied {
			return &LostError{Name: c.stripPrefix(l.fullName), Token: l.token, Reason: ErrTaken}
		}
		if err == nil {
			return nil // if it was not ours, an earlier attempt has released it
		}
		applied = applied || !driver.IsNotApplied(err)
		if driver.Permanent(err) {
			return opError("release", c.stripPrefix(l.fullName), err)
		}
		if n == 0 {
			began = c.clock.now()
		}
		err = storeError(context.Background(), err)
		if !l.adopted {
			c.recordAnswer(l.fullName, err, sent)
		}
		left := c.requestTimeout - (c.clock.now() - began)
		if left <= 0 {
			l.releaseAsync()
			return opError("release", c.stripPrefix(l.fullName), err)
		}
		time.Sleep(min(c.backoff.nthDelay(n), left))
	}
}

// releaseAsync sends releases in the background, unless the store no longer has the lease. It
// stops when the store must have freed the name in any case, or the Client is closed.
func (l *lease) releaseAsync() {
	end := *l.endReason.Load()
	if errors.Is(end, ErrTaken) || errors.Is(end, ErrBroken) || l.c.beginCall() != nil {
		return
	}
	go func() {
		defer l.c.activeCalls.Done()
		l.releaseUntilExpired(false)
	}()
}

// releaseUntilExpired sends releases until one is answered, or the store must have freed the name
// in any case. It also stops at a permanent error and when the Client is closed. If the lease is
// that of the queue's head, it records the answers for the waiters.
func (l *lease) releaseUntilExpired(isHead bool) {
	c := l.c
	l.waitIdle()
	for n := 0; ; n++ {
		sent := c.clock.now()
		_, err := l.sendRelease()
		if err == nil || driver.Permanent(err) || c.clock.now() >= time.Duration(l.latestExpiry.Load()) {
			return
		}
		if isHead {
			c.recordAnswer(l.fullName, storeError(context.Background(), err), sent)
		}
		timer := time.NewTimer(c.backoff.nthDelay(n))
		select {
		case <-timer.C:
		case <-c.closing:
			timer.Stop()
			return
		}
	}
}

// sendRelease makes one attempt to release the lease. It keeps the name taken for the rest of
// MinHold or ReleaseKeep.
func (l *lease) sendRelease() (bool, error) {
	c := l.c
	req := driver.ReleaseRequest{Name: l.fullName, Owner: l.owner}
	if keep := l.remainingKeep(); keep > 0 {
		req.Keep = min(max(keep, driver.MinTTL), driver.MaxTTL)
	}
	return request(c, context.Background(), c.requestTimeout, func(ctx context.Context) (bool, error) {
		return c.store.Release(ctx, req)
	})
}

// ReleaseKeep releases the lock as Release does, and keeps the name taken: nobody can acquire it
// until d after the call, by the clock of the store. It is for a holder that learns during the
// hold for how long the name must stay taken; Options.MinHold is for a holder that knows it
// before. If both apply, the later time counts.
//
// It returns nil if the store has confirmed it. After any other error the name may be free:
// errors are those of Release, [ErrReleased] if the lock had been released before, [ErrInvalid]
// if d is not between driver.MinTTL and driver.MaxTTL or the lock has other handles, and
// [ErrUnsupported] if the store does not keep names (Guarantees().Keep). After ErrInvalid and
// ErrUnsupported the lock is held as before.
func (l *Lock) ReleaseKeep(d time.Duration) error {
	lease := l.lease
	switch {
	case !lease.c.guarantees.Keep:
		return opError("release", l.Name(), ErrUnsupported)
	case d < driver.MinTTL || d > driver.MaxTTL:
		return opError("release", l.Name(), fmt.Errorf("%w: to keep it for %v is not between %v and %v", ErrInvalid, d, driver.MinTTL, driver.MaxTTL))
	case lease.handleCount() > 1:
		return opError("release", l.Name(), fmt.Errorf("%w: it has other handles", ErrInvalid))
	}
	// The time is set before the lock is checked: a release by ReleaseAll that the check does
	// not see then keeps the name as well.
	lease.keepUntil.Store(int64(lease.c.clock.now() + d))
	if end := l.Err(); end != nil {
		_ = l.Release() // the caller gets end
		return end
	}
	return l.Release()
}

// remainingKeep returns for how long from now the name must stay taken after a release. It is 0
// or less if the name need not stay taken.
func (l *lease) remainingKeep() time.Duration {
	until := time.Duration(l.keepUntil.Load())
	if l.minHold > 0 {
		until = max(until, l.grantedAt+l.minHold)
	}
	if until == 0 || l.discarded.Load() {
		return 0
	}
	return until - l.c.clock.now()
}
