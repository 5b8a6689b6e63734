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
	config    *workerConfig
	log       *eventLog
	openStore Opener

	mu     sync.Mutex
	client *recordedClient
}

// A recordedClient is a client of a store. The answers of a store that is Fair are logged.
type recordedClient struct {
	*holdfast.Client
	opened *holdfast.Client // owns the store
	number int              // counts the clients of the process
}

// openClient opens the store.
func (c *sharedClient) openClient(ctx context.Context, number int) (*recordedClient, error) {
	config := &holdfast.Config{TTL: c.config.TTL}
	opened, err := c.openStore(ctx, c.config.Stores, config)
	if err != nil {
		return nil, err
	}
	client := &recordedClient{Client: opened, opened: opened, number: number}
	if opened.Guarantees().Fair {
		store := &recordedStore{Store: opened.Store(), log: c.log, proc: c.config.Proc, places: map[string]bool{}}
		client.Client = holdfast.New(store, config)
	}
	return client, nil
}

// Close closes the client and its store.
func (c *recordedClient) Close() error { return errors.Join(c.Client.Close(), c.opened.Close()) }

// currentClient returns the client to use now.
func (c *sharedClient) currentClient() *recordedClient {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client
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
	client := c.currentClient()
	closes = closes && client.Guarantees().Scope != driver.ScopeProcess
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
