package holdfast

import (
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Backoff paces the attempts of a waiter. A waiter tries again when the store
// tells it of a release, when the holder's time is over, and after a pause:
// the pauses grow from Min to Max by doubling, each drawn at random from its
// upper half, so that waiters do not march in step.
//
// The greatest pause bounds how long a lock can lie free before a waiter takes
// it, whatever freed it and however many wake-ups were lost. Where the store
// watches over its own wake-ups that pause is long, so that a waiter costs next
// to nothing: there it is the second net, and the store's signals the first.
type Backoff struct {
	// Min is the first pause; 0 means 2 ms.
	Min time.Duration

	// Max is the greatest pause while the store does not wake waiters;
	// 0 means 250 ms.
	Max time.Duration

	// Watched is the greatest pause while it does; 0 means 2 s, or 20 s for a
	// store whose Guarantees are Supervised.
	Watched time.Duration
}

func (b Backoff) withDefaults(can driver.Guarantees) Backoff {
	if b.Min <= 0 {
		b.Min = 2 * time.Millisecond
	}
	if b.Max <= 0 {
		b.Max = 250 * time.Millisecond
	}
	switch {
	case b.Watched > 0:
	case can.Supervised:
		b.Watched = 20 * time.Second
	default:
		b.Watched = 2 * time.Second
	}
	b.Max = max(b.Max, b.Min)
	return b
}

// pause returns the n-th pause, counting from 0.
func (b Backoff) pause(n int) time.Duration {
	d := b.Max
	if n < 30 && b.Min<<n < b.Max {
		d = b.Min << n
	}
	return jitter(d)
}

// jitter draws from the upper half of d.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1)
}
