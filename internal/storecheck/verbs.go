package storecheck

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var owners atomic.Int64

// Request returns a request of an owner of its own, with the word "Secret".
func Request(name string, ttl time.Duration) driver.Request {
	return driver.Request{Name: name, Owner: fmt.Sprintf("SecretOwner%08d", owners.Add(1)), Holder: "host/1/x", TTL: ttl}
}

// Grant takes a lock that must be free.
func Grant(t *testing.T, s driver.Store, name string, ttl time.Duration) (driver.Request, int64) {
	t.Helper()
	req := Request(name, ttl)
	res, err := s.Acquire(t.Context(), req)
	if err != nil || !res.Granted {
		t.Fatalf("Acquire of %q: %+v, %v, want it granted", name, res, err)
	}
	return req, res.Token
}

// Wait makes a place.
func Wait(t *testing.T, s driver.Store, name string, d time.Duration) driver.Request {
	t.Helper()
	req := Request(name, d)
	req.Place = d
	res, err := s.Acquire(t.Context(), req)
	if err != nil || !res.Waiting {
		t.Fatalf("Acquire of %q: %+v, %v, want it to wait", name, res, err)
	}
	return req
}

// Refuse asks for a lock that must be held, and returns the hold.
func Refuse(t *testing.T, s driver.Store, name string) driver.Record {
	t.Helper()
	res, err := s.Acquire(t.Context(), Request(name, time.Minute))
	if err != nil || res.Granted {
		t.Fatalf("Acquire of %q: %+v, %v, want it refused", name, res, err)
	}
	return res.Held
}

// Release ends an entry, and reports whether there was one.
func Release(t *testing.T, s driver.Store, req driver.Request) bool {
	t.Helper()
	ended, err := s.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
	if err != nil {
		t.Fatalf("Release of %q: %v", req.Name, err)
	}
	return ended
}

// State returns what an owner has, by a renewal.
func State(t *testing.T, s driver.Store, req driver.Request) driver.State {
	t.Helper()
	entries, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: req.TTL}})
	if err != nil {
		t.Fatalf("Renew of %q: %v", req.Name, err)
	}
	return entries[0].State
}
