package holdfast_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// given acquires a lock and hands it over.
func given(t *testing.T, c *holdfast.Client, name string, o holdfast.Options) holdfast.Ticket {
	t.Helper()
	o.Detached = true
	ticket, err := acquire(t, c, name, &o).HandOver()
	if err != nil {
		t.Fatalf("HandOver: %v", err)
	}
	return ticket
}

func adopt(t *testing.T, c *holdfast.Client, ticket holdfast.Ticket, o *holdfast.Options) *holdfast.Lock {
	t.Helper()
	lock, err := c.Adopt(t.Context(), ticket, o)
	if err != nil {
		t.Fatalf("Adopt: %v", err)
	}
	return lock
}

// The one holder of a lock is followed by another, in another process.
func TestHandOver(t *testing.T) {
	for kind, store := range localStores {
		t.Run(kind, func(t *testing.T) {
			s := store(t)
			first, second := holdfast.New(s, nil), open(t, secondStore(t, s), nil)
			lock := acquire(t, first, "a", &holdfast.Options{Detached: true, Metadata: map[string]string{"k": "v"}})
			ticket, err := lock.HandOver()
			if err != nil {
				t.Fatal(err)
			}
			wantErr(t, lock.Err(), holdfast.ErrHandedOver)
			wantErr(t, context.Cause(lock.Context()), holdfast.ErrHandedOver)
			release(t, lock)
			if _, err := lock.HandOver(); err == nil {
				t.Error("it was handed over twice")
			}
			if err := first.Close(); err != nil {
				t.Error(err)
			}
			if kind == "file" { // a memory store is its locks
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
			_, err = second.TryAcquire(t.Context(), "a", nil)
			wantErr(t, err, holdfast.ErrHeld)
			next := adopt(t, second, ticket, nil)
			if next.Name() != "a" || next.Token() != lock.Token() || next.Holder() != first.Holder() || next.Metadata()["k"] != "v" {
				t.Errorf("adopted: %q, token %d, holder %q, metadata %v", next.Name(), next.Token(), next.Holder(), next.Metadata())
			}
			release(t, next)
			free(t, second, "a")
		})
	}
}

// An adopted lock is held like any other.
func TestAdoptedLock(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		first, second := open(t, store, nil), open(t, store, nil)
		lock := adopt(t, second, given(t, first, "a", holdfast.Options{}), nil)
		time.Sleep(time.Hour)
		if err := lock.Err(); err != nil {
			t.Errorf("it is not renewed: %v", err)
		}
		if err := lock.Extend(ctx, time.Hour); err != nil {
			t.Error(err)
		}
		if err := second.ReleaseAll(); err != nil {
			t.Error(err)
		}
		wantErr(t, lock.Err(), holdfast.ErrReleased)
		free(t, first, "a")

		lock = adopt(t, second, given(t, first, "a", holdfast.Options{}), nil)
		if _, err := second.Break(ctx, "a", 0); err != nil {
			t.Error(err)
		}
		wantErr(t, lock.Err(), holdfast.ErrTaken)

		lock = adopt(t, second, given(t, first, "a", holdfast.Options{}), &holdfast.Options{NoRenew: true, TTL: time.Minute})
		if left := time.Until(lock.Deadline()); left > time.Minute || left < 59*time.Second {
			t.Errorf("%v to the deadline", left)
		}
		time.Sleep(time.Minute)
		wantErr(t, lock.Err(), holdfast.ErrExpired)
	})
}

// Neither a waiter of the same Client nor the one who is about to adopt is in the
// other's way.
func TestAdoptBesideAWaiter(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		first, second := open(t, store, nil), open(t, store, nil)
		ticket := given(t, first, "a", holdfast.Options{})
		next := startWaiters(t, second, "a", 1)
		lock := adopt(t, second, ticket, nil)
		time.Sleep(time.Hour)
		release(t, lock)
		successor := <-next
		if successor.Token() <= lock.Token() {
			t.Errorf("token %d after %d", successor.Token(), lock.Token())
		}
	})
}

// Requests of an acquisition that come back late do not free what was handed
// over meanwhile.
func TestLateAnswerAfterAHandOver(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		first, store := faulty(t, nil)
		second := open(t, store.Store, nil)
		store.Once(faultstore.Acquire, func(_ context.Context, _ faultstore.Op, apply func()) error {
			time.Sleep(6 * time.Second) // beyond the bound of a request
			apply()
			return nil
		})
		lock := adopt(t, second, given(t, first, "a", holdfast.Options{}), nil)
		time.Sleep(time.Minute)
		if err := lock.Err(); err != nil {
			t.Error(err)
		}
		release(t, lock)
	})
}

func TestAdoptOverAFailingStore(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		ticket := given(t, c, "a", holdfast.Options{})
		store.Set(faultstore.Renew, faultstore.LoseReply)
		began := time.Now()
		_, err := c.Adopt(ctx, ticket, nil)
		wantErr(t, err, holdfast.ErrUnavailable)
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("took %v", took)
		}
		limited, cancel := context.WithTimeout(ctx, 50*ms)
		defer cancel()
		store.Set(faultstore.Renew, faultstore.Hang)
		_, err = c.Adopt(limited, ticket, nil)
		wantErr(t, err, context.DeadlineExceeded)

		store.Once(faultstore.Renew, far(2*time.Second))
		lock := adopt(t, c, ticket, nil)
		if left := time.Until(lock.Deadline()); left > 30*time.Second {
			t.Errorf("%v to the deadline", left)
		}
		release(t, lock)
		free(t, c, "a")
	})
}

// The deadline counts from the moment before the renewal was sent.
func TestDeadlineOfAnAdoptedLock(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		ticket := given(t, c, "a", holdfast.Options{TTL: time.Minute})
		store.Once(faultstore.Renew, far(2*time.Second))
		if left := time.Until(adopt(t, c, ticket, nil).Deadline()); left > 58*time.Second || left < 56*time.Second {
			t.Errorf("%v to the deadline after 2s on the way", left)
		}
	})
}

// A ticket is not out before the renewals under way are answered: one that arrived
// after the adoption could prolong the hold beyond what its adopter knows.
func TestHandOverWaitsForTheRenewalUnderWay(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		lock := acquire(t, c, "a", &holdfast.Options{Detached: true})
		renewed := false
		store.Once(faultstore.Renew, func(_ context.Context, _ faultstore.Op, apply func()) error {
			time.Sleep(2 * time.Second)
			apply()
			renewed = true
			return nil
		})
		time.Sleep(10*time.Second + ms)
		if _, err := lock.HandOver(); err != nil {
			t.Fatal(err)
		}
		if !renewed {
			t.Error("the ticket was handed out while a renewal was under way")
		}
	})
}
