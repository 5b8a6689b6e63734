package quorumstore

import (
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
