//go:build unix

package torture_test

import (
	"context"
	"net/url"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// plainCounter has its tokens from a counter that the server keeps: one that
// forgets counts from 1 again.
type plainCounter struct {
	soundStore
	client *redis.Client

	mu     sync.Mutex
	tokens map[string]int64 // by owner: the same attempt may be sent again
}

func openPlainCounter(ctx context.Context, urls []string) (driver.Store, error) {
	store, err := openSound(ctx, urls[0])
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(urls[0])
	if err != nil {
		return nil, err
	}
	return &plainCounter{soundStore: store, client: redis.NewClient(&redis.Options{Addr: u.Host}), tokens: map[string]int64{}}, nil
}

// Guarantees claims no queue, since notices would have the tokens of the store.
func (s *plainCounter) Guarantees() driver.Guarantees {
	can := s.Store.Guarantees()
	can.Fair = false
	return can
}

func (s *plainCounter) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.RenewOutcome, error) {
	reqs = slices.Clone(reqs)
	for i := range reqs {
		reqs[i].Token = 0
	}
	return s.Store.Renew(ctx, reqs)
}

func (s *plainCounter) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	req.NoPlace = true
	res, err := s.Store.Acquire(ctx, req)
	if err != nil || !res.Granted {
		return res, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens[req.Owner] == 0 {
		if s.tokens[req.Owner], err = s.client.Incr(ctx, "token").Result(); err != nil {
			return driver.AcquireResult{}, err
		}
	}
	res.Token = s.tokens[req.Owner]
	return res, nil
}

func (s *plainCounter) Close() error {
	_ = s.client.Close()
	return s.Store.Close()
}
