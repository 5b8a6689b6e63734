//go:build unix

package measure

import (
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/internal/hostclock"
)

// HandOvers passes a lock from one worker to the other and back, at most count times, until the
// span is over, and at least once. It returns for each time how long the lock was idle: from
// the call that releases it to the moment at which the other worker has it.
func HandOvers(holder, waiter *Worker, name string, count int, span time.Duration) ([]time.Duration, error) {
	if _, err := holder.Acquire(name); err != nil {
		return nil, err
	}
	const warmUps = 2
	var idle []time.Duration
	var end time.Time
	for i := 0; len(idle) < count; i++ {
		if i == warmUps {
			end = time.Now().Add(span)
		}
		d, err := handOver(holder, waiter, name)
		if err != nil {
			return nil, err
		}
		holder, waiter = waiter, holder
		if i < warmUps {
			continue
		}
		idle = append(idle, d)
		if time.Now().After(end) {
			break
		}
	}
	_, err := holder.Release(name)
	return idle, err
}

// An acquisition is the result of Worker.Acquire.
type acquisition struct {
	at  time.Duration
	err error
}

// startAcquire calls Acquire in a goroutine. The worker executes no other request meanwhile.
func startAcquire(w *Worker, name string) <-chan acquisition {
	acquired := make(chan acquisition, 1)
	go func() {
		at, err := w.Acquire(name)
		acquired <- acquisition{at, err}
	}()
	return acquired
}

// handOver releases the lock after the waiter has waited for a while: long enough to settle,
// and for a random time, so that a locker that polls is met at any point between two polls.
func handOver(holder, waiter *Worker, name string) (time.Duration, error) {
	acquired := startAcquire(waiter, name)
	time.Sleep(20*time.Millisecond + rand.N(100*time.Millisecond))
	released, err := holder.Release(name)
	if err != nil {
		return 0, err
	}
	taken := <-acquired
	return taken.at - released, taken.err
}

// TakeOver kills the holder of a lock while the waiter waits for it, and returns how long the
// lock was idle after it expired. After the kill, expiry returns the time of the host's clock at
// which the lock expires. A waiter that does not have the lock for longer than the bound after
// that is killed, and TakeOver returns the bound.
func TakeOver(holder, waiter *Worker, name string, bound time.Duration,
	expiry func() (time.Duration, error),
) (time.Duration, error) {
	if _, err := holder.Acquire(name); err != nil {
		return 0, err
	}
	acquired := startAcquire(waiter, name)
	time.Sleep(200 * time.Millisecond) // The waiter settles.
	if err := holder.Kill(); err != nil {
		return 0, err
	}
	expires, err := expiry()
	if err != nil {
		return 0, err
	}
	select {
	case taken := <-acquired:
		if taken.err != nil {
			return 0, taken.err
		}
		_, err := waiter.Release(name)
		return max(0, taken.at-expires), err
	case <-time.After(expires - hostclock.Now() + bound):
		return bound, waiter.Kill()
	}
}
