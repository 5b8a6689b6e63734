package holdfast

import (
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Backoff paces the attempts of a waiter. A waiter tries again when the store signals a release,
// when the holder's time is over, and after a pause. The pauses grow from Min to Max by doubling.
// Each is drawn at random from its upper half, so that waiters do not try at the same moments.
//
// The greatest pause bounds how long a lock can be free before a waiter acquires it, whatever
// freed it and however many wake-ups were lost. If the store detects lost wake-ups itself
// (Guarantees().Supervised), that pause is long, because the store's signals come first and the
// pause is only the fallback; a waiter then costs next to nothing.
type Backoff struct {
	// Min is the first pause; 0 means 2 ms.
	Min time.Duration

	// Max is the greatest pause while the store does not signal releases, at least Min; 0 means
	// 250 ms, or Min if that is more.
	Max time.Duration

	// Watched is the greatest pause while it does; 0 means 2 s, or 20 s if the
	// Guarantees of the store are Supervised.
	Watched time.Duration
}

// withDefaults returns b with its zero fields set to the defaults.
func (b Backoff) withDefaults(guarantees driver.Guarantees) Backoff {
	if b.Min <= 0 {
		b.Min = 2 * time.Millisecond
	}
	if b.Max <= 0 {
		b.Max = 250 * time.Millisecond
	}
	switch {
	case b.Watched > 0:
	case guarantees.Supervised:
		b.Watched = 20 * time.Second
	default:
		b.Watched = 2 * time.Second
	}
	b.Max = max(b.Max, b.Min)
	return b
}

// nthDelay returns the n-th pause, counting from 0.
func (b Backoff) nthDelay(n int) time.Duration {
	d := b.Max
	if n < 30 && b.Min<<n < b.Max {
		d = b.Min << n
	}
	return jitter(d)
}

// jitter returns a random duration in the upper half of d.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1)
}
