package hookcheck

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
)

// A History does random things with locks of one Client, in several goroutines.
type History struct {
	Locks *holdfast.Client
	Other *holdfast.Client // a Client of the same store, which takes over and breaks holds
	Seed  uint64
	Steps int // of each goroutine
}

// historyTTL is the TTL of holds that are renewed. A hold that is handed over and forgotten keeps its
// name for that long.
const historyTTL = 300 * time.Millisecond

// Run does it and returns when it is done. The results of the calls are random, too.
func (h *History) Run(ctx context.Context) {
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			r := rand.New(rand.NewPCG(h.Seed, uint64(worker)))
			for range h.Steps {
				h.step(ctx, r)
			}
		})
	}
	group.Wait()
}

// step makes one or several acquisitions, and ends them.
func (h *History) step(ctx context.Context, r *rand.Rand) {
	limited, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(30000))*time.Microsecond)
	defer cancel()
	name, o := h.options(r)
	var lock *holdfast.Lock
	switch r.IntN(12) {
	case 0, 1, 2:
		lock, _ = h.Locks.TryAcquire(ctx, name, o)
	case 3:
		names := []string{name, name + "/2", name + "/3"}
		if set, err := h.Locks.AcquireAll(limited, names, o); err == nil {
			pause(r)
			_ = set.Release()
		}
		return
	case 4:
		_ = h.Locks.Do(limited, name, o, func(ctx context.Context) error {
			pause(r)
			return ctx.Err()
		})
		return
	case 5:
		if r.IntN(4) == 0 {
			_ = h.Locks.ReleaseAll()
		}
		return
	case 6:
		time.AfterFunc(time.Duration(r.IntN(3000))*time.Microsecond, cancel) // at any moment
		lock, _ = h.Locks.Acquire(limited, name, o)
	default:
		lock, _ = h.Locks.Acquire(limited, name, o)
	}
	if lock != nil {
		pause(r)
		h.end(ctx, r, lock)
	}
}

func pause(r *rand.Rand) { time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond) }

// options returns a name, and options that suit it and the store.
func (h *History) options(r *rand.Rand) (name string, o *holdfast.Options) {
	has := h.Locks.Guarantees()
	o = &holdfast.Options{TTL: historyTTL}
	name = fmt.Sprint("plain ", r.IntN(2))
	switch r.IntN(10) {
	case 0, 1:
		return "reentrant", &holdfast.Options{TTL: historyTTL, Reentrant: true}
	case 2:
		o.Shared = has.Shared
	case 3:
		if has.Limited {
			return "limited", &holdfast.Options{TTL: historyTTL, Limit: 3}
		}
	case 4, 5:
		o.Detached = has.Detached
	case 8:
		if has.Keep {
			o.MinHold = 10 * time.Millisecond
		}
	case 6:
		o.MaxHold = time.Millisecond
	case 7:
		o.TTL, o.NoRenew = 10*time.Millisecond, true
	}
	return name, o
}

// end ends the hold of a lock in one of many ways.
func (h *History) end(ctx context.Context, r *rand.Rand, lock *holdfast.Lock) {
	has := h.Locks.Guarantees()
	defer lock.Release()
	switch r.IntN(9) {
	case 0:
		_ = lock.ReleaseKeep(10 * time.Millisecond)
	case 1:
		_ = lock.Extend(ctx, historyTTL)
	case 2:
		if has.Break {
			_, _ = h.Locks.Break(ctx, lock.Name())
		}
	case 3:
		if has.Break {
			_, _ = h.Other.Break(ctx, lock.Name())
		}
	case 4, 5:
		end := lock.HandOver
		if r.IntN(2) == 0 {
			end = lock.Ticket
		}
		ticket, err := end()
		if err != nil {
			return
		}
		adopter := h.Locks
		if r.IntN(2) == 0 {
			adopter = h.Other
		}
		if adopted, err := adopter.Adopt(ctx, ticket, nil); err == nil {
			pause(r)
			_ = adopted.Release()
		}
	case 6:
		time.Sleep(15 * time.Millisecond)
		_ = lock.Err()
	case 7:
		go lock.Release()
	}
}
