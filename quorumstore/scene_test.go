package quorumstore

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/storecheck"
)

const name = "invoices/42"

var owners atomic.Int64

// request returns a request for the name, with an owner of its own.
func request(holder string) driver.Request {
	return driver.Request{
		Name:   name,
		Owner:  fmt.Sprintf("secret-%s-%d", holder, owners.Add(1)),
		Holder: holder,
		TTL:    30 * time.Second,
	}
}

func acquire(t *testing.T, s *Store, req driver.Request) driver.Result {
	t.Helper()
	res, err := s.Acquire(t.Context(), req)
	if err != nil {
		t.Fatalf("Acquire for %s: %v", req.Holder, err)
	}
	return res
}

// grant is acquire of what must be granted.
func grant(t *testing.T, s *Store, req driver.Request) int64 {
	t.Helper()
	res := acquire(t, s, req)
	if !res.Granted {
		t.Fatalf("Acquire for %s was refused: %+v", req.Holder, res.Held)
	}
	return res.Token
}

// insist makes attempts, each of a new owner, until the votes have a winner, which it must be.
func insist(t testing.TB, s *Store, holder string) (driver.Request, int64) {
	t.Helper()
	for range 20 {
		req := request(holder)
		res, err := s.Acquire(t.Context(), req)
		var again *driver.RetryError
		switch {
		case errors.As(err, &again):
			time.Sleep(again.After)
		case err != nil || !res.Granted:
			t.Fatalf("Acquire for %s: %+v, %v", holder, res, err)
		default:
			return req, res.Token
		}
	}
	t.Fatalf("no vote for %s has a winner", holder)
	return driver.Request{}, 0
}

// Verbs, as tests use them.
var (
	giveBack = storecheck.Release
	renew    = storecheck.State
)

// holders checks the holder of the name on each server, "" for none.
func (c cluster) holders(t *testing.T, want ...string) {
	t.Helper()
	for i, s := range c {
		if got := s.holder(); got != want[i] {
			t.Errorf("server %d has %q, want %q", i, got, want[i])
		}
	}
}

// inBubble runs a scene in virtual time, with so many servers.
func inBubble(t *testing.T, size int, scene func(t *testing.T, c cluster)) {
	synctest.Test(t, func(t *testing.T) { scene(t, newCluster(t, size)) })
}

// took runs f and returns how long it took.
func took(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}
