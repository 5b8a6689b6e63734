//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// A sharedClient is the client that all workers of a process use. When it is closed, another client
// takes its place.
type sharedClient struct {
	config    *workerConfig
	log       *eventLog
	openStore Opener

	mu     sync.Mutex
	client *numberedClient
}

// A numberedClient is a client of a store.
type numberedClient struct {
	*holdfast.Client
	number int // counts the clients of the process
}

// openClient opens the store.
func (c *sharedClient) openClient(ctx context.Context, number int) (*numberedClient, error) {
	client, err := c.openStore(ctx, c.config.Stores, &holdfast.Config{TTL: c.config.TTL})
	return &numberedClient{client, number}, err
}

// currentClient returns the client to use now.
func (c *sharedClient) currentClient() *numberedClient {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client
}

// injectClientFaults releases all locks of the client from time to time, or replaces the client and
// closes it, until ctx ends.
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

// endAllLocks releases all locks of the client, or replaces the client and closes it. On a store of
// this process alone, another client would have other locks: there the client is never closed.
func (c *sharedClient) endAllLocks(ctx context.Context, closes bool) error {
	client := c.currentClient()
	closes = closes && !client.Guarantees().InProcess
	if closes {
		next, err := c.openClient(ctx, client.number+1)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, holdfast.ErrUnavailable) {
				return nil
			}
			return err
		}
		c.mu.Lock()
		c.client = next
		c.mu.Unlock()
	}
	e := Event{At: now(), Step: EndsAll, Proc: c.config.Proc, Client: client.number}
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

// availabilityTimeout is how long a store may be unavailable before and after a run. While the disk
// of the machine is busy, a server can stall for a while.
const availabilityTimeout = time.Minute

// untilAvailable repeats call while its error is ErrUnavailable, until availabilityTimeout or ctx
// ends.
func untilAvailable(ctx context.Context, call func() error) error {
	for started := now(); ; {
		err := call()
		if !errors.Is(err, holdfast.ErrUnavailable) || ctx.Err() != nil || now()-started > availabilityTimeout {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// findLeaks returns the locks that the run has left behind in the store, whole or as shares. These
// are the locks that an exclusive attempt does not get after the TTLs of killed processes have run
// out.
func findLeaks(client *holdfast.Client, names []string, ttl time.Duration) ([]string, error) {
	ctx := context.Background()
	var leaks []string
	for _, name := range names {
		err := untilAvailable(ctx, func() error {
			ctx, cancel := context.WithTimeout(ctx, 2*ttl+client.Guarantees().Grain+10*time.Second)
			defer cancel()
			lock, err := client.Acquire(ctx, name, &holdfast.Options{TTL: ttl})
			if err != nil {
				return err
			}
			return lock.Release()
		})
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			leaks = append(leaks, fmt.Sprintf("%s is held although all have ended", name))
		case err != nil:
			return nil, err
		}
	}
	return leaks, nil
}
