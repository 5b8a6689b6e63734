//go:build unix

package torture

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// A sharedClient is the client that all workers of a process use. When it is closed,
// another client takes its place.
type sharedClient struct {
	config     *workerConfig
	log        *eventLog
	openClient func(context.Context) (*holdfast.Client, error)

	mu     sync.Mutex
	client *holdfast.Client
	number int // counts the clients so far
}

// currentClient returns the client to use now, and its number.
func (c *sharedClient) currentClient() (*holdfast.Client, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client, c.number
}

// injectClientFaults releases all locks of the client from time to time, or replaces the
// client and closes it, until ctx ends.
func (c *sharedClient) injectClientFaults(ctx context.Context, rng *rand.Rand) error {
	for {
		_ = retry.Sleep(ctx, time.Duration(rng.Int64N(int64(2*c.config.TTL)))+1)
		if ctx.Err() != nil {
			return nil
		}
		if err := c.endAllLocks(ctx, rng.IntN(2) == 0); err != nil {
			return err
		}
	}
}

// endAllLocks releases all locks of the client, or replaces the client and closes it. On a
// store of this process alone, another client would have other locks: there the client is
// never closed.
func (c *sharedClient) endAllLocks(ctx context.Context, closes bool) error {
	client, number := c.currentClient()
	closes = closes && client.Guarantees().Scope != driver.ScopeProcess
	if closes {
		next, err := c.openClient(ctx)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, holdfast.ErrUnavailable) {
				return nil
			}
			return err
		}
		c.mu.Lock()
		c.client, c.number = next, number+1
		c.mu.Unlock()
	}
	e := Event{At: now(), Step: EndsAll, Proc: c.config.Proc, Client: number}
	c.log.appendEvent(e)
	var err error
	if closes {
		err = client.Close()
	} else {
		err = client.ReleaseAll()
	}
	e.At, e.Step = now(), EndedAll
	if err != nil { // a release was not confirmed; the work under Do gets the error
		e.Err = err.Error()
	}
	c.log.appendEvent(e)
	return nil
}
