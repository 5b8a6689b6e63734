//go:build unix

package torture

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/internal/retry"
)

// A ForeignClient is a client of another kind, which takes the locks of the store without package
// holdfast and does not wait in queues.
type ForeignClient interface {
	// Take takes a lock for ttl.
	Take(ctx context.Context, name, owner string, ttl time.Duration) (token int64, taken bool, err error)

	// Free releases a lock, and reports whether the owner had it.
	Free(ctx context.Context, name, owner string) (bool, error)

	Close()
}

// A ForeignOpener opens the store with these URLs for a client of another kind. It returns nil if
// there is none for this store.
type ForeignOpener func(urls []string) (ForeignClient, error)

// foreignTimeout is for how long a client of another kind waits for an answer.
const foreignTimeout = time.Second

// runForeignAttempt takes a lock once as a client of another kind, after a pause, and frees it.
func (w *worker) runForeignAttempt(ctx context.Context, c ForeignClient) {
	_ = retry.Sleep(ctx, w.randomUpTo(100*time.Millisecond))
	w.try++
	w.name, w.token = w.Names[w.rng.IntN(len(w.Names))], 0
	owner := rand.Text()
	sent := now()
	limited, cancel := context.WithTimeout(ctx, foreignTimeout)
	token, taken, err := c.Take(limited, w.name, owner, w.TTL)
	cancel()
	if err != nil || !taken {
		return
	}
	w.token = token
	at, until := now(), sent+w.TTL-w.TTL/100
	if at >= until {
		return // This process was stopped meanwhile, and the lock is over.
	}
	w.recordEvent(Event{At: sent, Step: Asks, Foreign: true})
	w.recordEvent(Event{At: at, Step: Got, Until: until, Foreign: true})
	length := w.randomUpTo(10 * time.Millisecond)
	if w.percentChance(w.Long) {
		length = w.randomUpTo(2 * w.TTL) // it may end at its TTL
	}
	_ = retry.Sleep(ctx, length)
	w.recordEvent(Event{At: now(), Step: Releases, Foreign: true})
	limited, cancel = context.WithTimeout(context.WithoutCancel(ctx), foreignTimeout)
	defer cancel()
	freed, err := c.Free(limited, w.name, owner)
	if err == nil && !freed {
		err = errors.New("it was not one's own")
	}
	w.recordEvent(Event{At: now(), Step: Released, Foreign: true, Err: errorText(err)})
}
