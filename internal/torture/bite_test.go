//go:build unix

package torture_test

import (
	"context"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/internal/torture"
)

// variants are the mistakes that locks have in the field. Each is put between
// package holdfast and a store that is sound.
var variants = map[string]func(driver.Store) driver.Store{
	"release without compare":        func(s driver.Store) driver.Store { return &carelessRelease{s} },
	"renewal that ignores errors":    func(s driver.Store) driver.Store { return &deafRenewal{s} },
	"deadline taken after the reply": func(s driver.Store) driver.Store { return &lateDeadline{s} },
	"votes of an earlier round":      func(s driver.Store) driver.Store { return &lateVotes{Store: s} },
	"token by plain counter":         func(s driver.Store) driver.Store { return &plainCounter{s} },
	"no owner check":                 func(s driver.Store) driver.Store { return &yesMan{s} },
}

func openBroken(ctx context.Context, variant string, urls []string, config *holdfast.Config) (*holdfast.Client, error) {
	u, err := url.Parse(urls[0])
	if err != nil {
		return nil, err
	}
	opener, _ := driver.Lookup(u.Scheme)
	store, err := opener(ctx, u)
	if err != nil {
		return nil, err
	}
	return holdfast.New(variants[variant](store), config), nil
}

// carelessRelease deletes the lock, whoever has it.
type carelessRelease struct{ driver.Store }

func (s *carelessRelease) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	_, had, err := s.Store.Break(ctx, req.Name)
	return had, err
}

// deafRenewal takes no answer for a yes.
type deafRenewal struct{ driver.Store }

func (s *deafRenewal) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.RenewOutcome, error) {
	limited, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	outcomes, err := s.Store.Renew(limited, reqs)
	if err != nil {
		return slices.Repeat([]driver.RenewOutcome{driver.Renewed}, len(reqs)), nil
	}
	return outcomes, nil
}

// lateDeadline has the holder believe in the lock for longer than the store
// keeps it, as who counts from the reply of a slow request does.
type lateDeadline struct{ driver.Store }

const replyTakes = 300 * time.Millisecond

func (s *lateDeadline) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	req.TTL -= replyTakes
	return s.Store.Acquire(ctx, req)
}

func (s *lateDeadline) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.RenewOutcome, error) {
	reqs = slices.Clone(reqs)
	for i := range reqs {
		reqs[i].TTL -= replyTakes
	}
	return s.Store.Renew(ctx, reqs)
}

// lateVotes counts the answers to an earlier renewal for those to this one.
type lateVotes struct {
	driver.Store
	mu      sync.Mutex
	renewed map[string]bool // what the last answer said of each owner
}

func (s *lateVotes) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.RenewOutcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	outcomes := make([]driver.RenewOutcome, len(reqs))
	for i, req := range reqs {
		outcomes[i] = driver.Renewed
		if renewed, known := s.renewed[req.Owner]; known && !renewed {
			outcomes[i] = driver.RenewLost
		}
	}
	go s.ask(context.WithoutCancel(ctx), slices.Clone(reqs))
	return outcomes, nil
}

func (s *lateVotes) ask(ctx context.Context, reqs []driver.RenewRequest) {
	outcomes, err := s.Store.Renew(ctx, reqs)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.renewed == nil {
		s.renewed = map[string]bool{}
	}
	for i, req := range reqs {
		s.renewed[req.Owner] = outcomes[i] == driver.Renewed
	}
}

// plainCounter counts its grants from 1, and begins anew with the process.
type plainCounter struct{ driver.Store }

var counter struct {
	sync.Mutex
	of    map[string]int64 // by owner
	count int64
}

func (s *plainCounter) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	res, err := s.Store.Acquire(ctx, req)
	if res.Granted {
		counter.Lock()
		defer counter.Unlock()
		if counter.of == nil {
			counter.of = map[string]int64{}
		}
		if counter.of[req.Owner] == 0 {
			counter.count++
			counter.of[req.Owner] = counter.count
		}
		res.Token = counter.of[req.Owner]
	}
	return res, err
}

// yesMan grants what is held.
type yesMan struct{ driver.Store }

func (s *yesMan) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	res, err := s.Store.Acquire(ctx, req)
	if err == nil && !res.Granted && res.Held.Token > 0 {
		return driver.AcquireResult{Granted: true, Token: res.Held.Token + 1}, nil
	}
	return res, err
}

// Every mistake is found within a minute.
func TestItBites(t *testing.T) {
	for variant := range variants {
		t.Run(variant, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			for {
				redis := servers.StartRedis(t)
				o := options(t, "redis://"+redis.Addr)
				o.Worker, o.For = worker(variant), 4*time.Second
				o.TTL, o.Long, o.Faults = 500*time.Millisecond, 50, []torture.Fault{torture.Partition}
				if run(t, o).Failed() {
					t.Logf("found within %v", time.Since(began).Round(time.Second))
					return
				}
				if time.Since(began) > time.Minute {
					t.Fatal("not found out")
				}
			}
		})
	}
}
