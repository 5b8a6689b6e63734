package holdfast

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

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
