package anystore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

// Tickets hands a lock over from one client to the next, each of which stands for
// a process: open makes one, with nothing in common with the others but the
// store, and every one of them is closed when it has handed on.
func Tickets(t testing.TB, open func() *holdfast.Client) {
	t.Helper()
	ctx := context.Background()
	first := open()
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
		next := open()
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
	stale(t, first, ticket)
	closeClient(t, first)
}

// stale checks that a ticket whose hold is over does nothing.
func stale(t testing.TB, c *holdfast.Client, ticket holdfast.Ticket) {
	t.Helper()
	ctx := context.Background()
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

func closeClient(t testing.TB, c *holdfast.Client) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}
