package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

// Tickets hands a lock over from one client to the next. Each client stands for a process: it
// shares only the store with the others, and is closed when it has handed the lock over.
func Tickets(t *testing.T, s *Store) {
	t.Helper()
	ctx := t.Context()
	first := s.Open(t, nil)
	lock, err := first.Acquire(ctx, "ticket", &holdfast.Options{Detached: true, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	token := lock.Token()
	var ticket holdfast.Ticket
	for range 3 {
		if ticket, err = lock.HandOver(); err != nil {
			t.Fatal(err)
		}
		next := s.Open(t, nil)
		closeClient(t, first)
		first = next
		if _, err := first.TryAcquire(ctx, "ticket", nil); !errors.Is(err, holdfast.ErrHeld) {
			t.Fatalf("after a hand-over: %v, want it held", err)
		}
		if lock, err = first.Adopt(ctx, ticket, nil); err != nil {
			t.Fatal(err)
		}
		if lock.Token() != token || lock.Err() != nil {
			t.Errorf("adopted: token %d, %v, want token %d", lock.Token(), lock.Err(), token)
		}
		if err := lock.Extend(ctx, 2*time.Minute); err != nil {
			t.Error(err)
		}
	}
	if err := lock.Release(); err != nil {
		t.Errorf("Release of an adopted lock: %v", err)
	}
	checkStaleTicket(t, first, ticket)
	closeClient(t, first)
}

// checkStaleTicket checks that a ticket of a lock that has ended does nothing.
func checkStaleTicket(t *testing.T, c *holdfast.Client, ticket holdfast.Ticket) {
	t.Helper()
	ctx := t.Context()
	for _, successor := range []bool{false, true} {
		var next *holdfast.Lock
		if successor {
			var err error
			if next, err = c.TryAcquire(ctx, "ticket", nil); err != nil {
				t.Fatalf("a stale ticket has taken the lock: %v", err)
			}
		}
		if _, err := c.Adopt(ctx, ticket, nil); !errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("a stale ticket: %v, want ErrNotHeld", err)
		}
		if next == nil {
			continue
		}
		if err := next.Extend(ctx, time.Minute); err != nil {
			t.Errorf("a stale ticket has ended the hold of a successor: %v", err)
		}
		if err := next.Release(); err != nil {
			t.Error(err)
		}
	}
}

func closeClient(t *testing.T, c *holdfast.Client) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}
