package quorumstore

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

const name = "invoices/42"

var owners atomic.Int64

// request returns a request for the name, with an owner of its own.
func request(holder string) olddriver.AcquireRequest {
	return olddriver.AcquireRequest{
		Name:   name,
		Owner:  fmt.Sprintf("secret-%s-%d", holder, owners.Add(1)),
		Holder: holder,
		TTL:    30 * time.Second,
	}
}

// toNode is the request in the words of a node.
func toNode(req olddriver.AcquireRequest) driver.Request {
	return driver.Request{Name: req.Name, Owner: req.Owner, Holder: req.Holder, TTL: req.TTL, Floor: req.Floor}
}

func acquire(t *testing.T, s *engine, req olddriver.AcquireRequest) olddriver.AcquireResult {
	t.Helper()
	res, err := s.Acquire(t.Context(), req)
	if err != nil {
		t.Fatalf("Acquire for %s: %v", req.Holder, err)
	}
	return res
}

// grant is acquire of what must be granted.
func grant(t *testing.T, s *engine, req olddriver.AcquireRequest) int64 {
	t.Helper()
	res := acquire(t, s, req)
	if !res.Granted {
		t.Fatalf("Acquire for %s was refused: %+v", req.Holder, res.Held)
	}
	return res.Token
}

func giveBack(t *testing.T, s *engine, req olddriver.AcquireRequest) bool {
	t.Helper()
	ended, err := s.Release(t.Context(), olddriver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
	if err != nil {
		t.Fatalf("Release for %s: %v", req.Holder, err)
	}
	return ended
}

func renew(t *testing.T, s *engine, req olddriver.AcquireRequest) olddriver.RenewOutcome {
	t.Helper()
	outcomes, err := s.Renew(t.Context(), []olddriver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: req.TTL}})
	if err != nil {
		t.Fatalf("Renew for %s: %v", req.Holder, err)
	}
	return outcomes[0]
}

// holders checks the holder of the name on each server, "" for none.
func (c cluster) holders(t *testing.T, want ...string) {
	t.Helper()
	for i, s := range c {
		if got := s.holder(name); got != want[i] {
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

// bounded is a context that ends with the test, or after d.
func bounded(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// number is how much of a long proof is run: by the environment, or else so much
// as an ordinary run has time for.
func number(t *testing.T, variable string, ordinary int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return ordinary
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}
