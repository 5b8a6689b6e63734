package driver_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// TestDetachConformance runs the contract against a detached store.
func TestDetachConformance(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{
		Virtual: true,
		New: func(testing.TB) drivertest.Backing {
			store := memstore.New()
			return drivertest.Backing{
				Open: func(testing.TB) driver.Store { return driver.Detach(sharedStore{store}) },
			}
		},
	})
}

// A sharedStore is a store that its users do not close.
type sharedStore struct{ *memstore.Store }

func (sharedStore) Close() error { return nil }

// hangUntil returns a fault that ignores its context, and applies the request when release is
// closed.
func hangUntil(release <-chan struct{}) faultstore.Fault {
	return func(_ context.Context, _ faultstore.Op, apply func()) error {
		<-release
		apply()
		return nil
	}
}

var (
	ownerRequest   = driver.AcquireRequest{Name: "a", Owner: "owner", Holder: "holder", TTL: time.Hour}
	ownerRelease   = driver.ReleaseRequest{Name: "a", Owner: "owner"}
	everyOperation = []faultstore.Op{faultstore.Acquire, faultstore.Renew, faultstore.Release, faultstore.Lookup, faultstore.Break}
)

// detachedFaults returns a store with faults, and the detached one, in virtual time.
func detachedFaults(t *testing.T, test func(t *testing.T, store driver.Store, faults *faultstore.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		faults := faultstore.Wrap(memstore.New())
		test(t, driver.Detach(faults), faults)
	})
}

// A call of a store that ignores its context returns when its context ends, by its deadline or
// before, with the error of the context.
func TestDetachedCallsReturnWithTheirContext(t *testing.T) {
	calls := map[string]func(driver.Store, context.Context) error{
		"Acquire": func(s driver.Store, ctx context.Context) error { _, err := s.Acquire(ctx, ownerRequest); return err },
		"Renew": func(s driver.Store, ctx context.Context) error {
			_, err := s.Renew(ctx, []driver.RenewRequest{{Name: "a", Owner: "owner", TTL: time.Hour}})
			return err
		},
		"Release": func(s driver.Store, ctx context.Context) error { _, err := s.Release(ctx, ownerRelease); return err },
		"Lookup":  func(s driver.Store, ctx context.Context) error { _, _, err := s.Lookup(ctx, "a"); return err },
		"Break": func(s driver.Store, ctx context.Context) error {
			_, _, err := s.Break(ctx, driver.BreakRequest{Name: "a"})
			return err
		},
	}
	for name, call := range calls {
		detachedFaults(t, func(t *testing.T, store driver.Store, faults *faultstore.Store) {
			release := make(chan struct{})
			for _, op := range everyOperation {
				faults.Set(op, hangUntil(release))
			}
			canceled, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			limited, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			for _, ctx := range []context.Context{canceled, limited} {
				began := time.Now()
				if err := call(store, ctx); err == nil || err != ctx.Err() || driver.IsNotApplied(err) {
					t.Errorf("%s: %v, want %v", name, err, ctx.Err())
				}
				if took := time.Since(began); took != time.Second {
					t.Errorf("%s returned after %v, want 1s", name, took)
				}
			}
			if err := call(store, canceled); !errors.Is(err, context.Canceled) || !driver.IsNotApplied(err) {
				t.Errorf("%s with a context that has ended: %v", name, err)
			}
			close(release)
		})
	}
}

// A store that returns by its deadline reports what it waited for, at the deadline too.
func TestDetachedStoreReportsAtItsDeadline(t *testing.T) {
	detachedFaults(t, func(t *testing.T, store driver.Store, faults *faultstore.Store) {
		reason := errors.New("the disk does not answer")
		faults.Set(faultstore.Acquire, func(ctx context.Context, _ faultstore.Op, _ func()) error {
			<-ctx.Done()
			return reason
		})
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			began := time.Now()
			if _, err := store.Acquire(ctx, ownerRequest); err != reason {
				t.Fatalf("Acquire: %v", err)
			}
			if took := time.Since(began); took < 700*time.Millisecond {
				t.Fatalf("the store had %v of 1s", took)
			}
			cancel()
		}
	})
}

// A grant that comes after the caller has gone is released if the owner was released before, and
// stays if the owner was not: the caller may have repeated the request.
func TestDetachedLateGrant(t *testing.T) {
	for _, releases := range []bool{true, false} {
		detachedFaults(t, func(t *testing.T, store driver.Store, faults *faultstore.Store) {
			release := make(chan struct{})
			faults.Set(faultstore.Acquire, hangUntil(release))
			for range 2 { // both are applied late
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := store.Acquire(ctx, ownerRequest); err != context.DeadlineExceeded {
					t.Fatalf("Acquire: %v", err)
				}
			}
			if releases {
				if ours, err := store.Release(t.Context(), ownerRelease); ours || err != nil {
					t.Fatalf("Release: %v, %v", ours, err)
				}
			}
			close(release)
			synctest.Wait()
			if _, held, err := store.Lookup(t.Context(), "a"); held == releases || err != nil {
				t.Errorf("released before: %v; held after the late grant: %v, %v", releases, held, err)
			}
			faults.Set(faultstore.Acquire, nil)
			if _, err := store.Release(t.Context(), ownerRelease); err != nil {
				t.Error(err)
			}
			again := ownerRequest
			again.Owner = "next"
			if res, err := store.Acquire(t.Context(), again); err != nil || !res.Granted {
				t.Errorf("Acquire after the late grant: %+v, %v", res, err)
			}
		})
	}
}

// A place that comes after the caller has gone is treated as a grant is.
func TestDetachedLatePlace(t *testing.T) {
	for _, releases := range []bool{true, false} {
		detachedFaults(t, func(t *testing.T, store driver.Store, faults *faultstore.Store) {
			if res, err := store.Acquire(t.Context(), driver.AcquireRequest{Name: "a", Owner: "holder", TTL: time.Hour}); err != nil || !res.Granted {
				t.Fatalf("Acquire: %+v, %v", res, err)
			}
			release := make(chan struct{})
			faults.Once(faultstore.Acquire, hangUntil(release))
			waits := ownerRequest
			waits.Queue = time.Minute
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := store.Acquire(ctx, waits); err != context.DeadlineExceeded {
				t.Fatalf("Acquire: %v", err)
			}
			if releases {
				if ours, err := store.Release(t.Context(), ownerRelease); ours || err != nil {
					t.Fatalf("Release: %v, %v", ours, err)
				}
			}
			close(release)
			synctest.Wait()
			outcomes, err := store.Renew(t.Context(), []driver.RenewRequest{{Name: "a", Owner: "owner", TTL: time.Second}})
			if err != nil || (outcomes[0] == driver.RenewQueued) == releases {
				t.Errorf("released before: %v; Renew after the late place: %v, %v", releases, outcomes, err)
			}
		})
	}
}

// Notices of the store go to the function that is registered, until it is stopped.
func TestDetachedNotify(t *testing.T) {
	store := driver.Detach(memstore.New())
	var notices []driver.Notice
	stop := store.(driver.Notifier).Notify(func(n driver.Notice) { notices = append(notices, n) })
	for _, owner := range []string{"owner", "second", "third"} {
		req := ownerRequest
		req.Owner, req.Queue = owner, time.Minute
		if _, err := store.Acquire(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	for _, owner := range []string{"owner", "second"} {
		if ours, err := store.Release(t.Context(), driver.ReleaseRequest{Name: "a", Owner: owner}); !ours || err != nil {
			t.Fatalf("Release of %s: %v, %v", owner, ours, err)
		}
		stop()
	}
	if len(notices) != 1 || notices[0].Kind != driver.Granted || notices[0].Owner != "second" {
		t.Errorf("the notices are %+v, want that of the second owner", notices)
	}
}

// A grant that comes after the owner was released, and after the same owner has acquired again,
// ends nothing.
func TestDetachedLateGrantAfterANewAcquire(t *testing.T) {
	detachedFaults(t, func(t *testing.T, store driver.Store, faults *faultstore.Store) {
		release := make(chan struct{})
		faults.Once(faultstore.Acquire, hangUntil(release))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := store.Acquire(ctx, ownerRequest); err != context.DeadlineExceeded {
			t.Fatalf("Acquire: %v", err)
		}
		if _, err := store.Release(t.Context(), ownerRelease); err != nil {
			t.Fatal(err)
		}
		if res, err := store.Acquire(t.Context(), ownerRequest); err != nil || !res.Granted {
			t.Fatalf("Acquire after the release: %+v, %v", res, err)
		}
		close(release)
		synctest.Wait()
		if _, held, err := store.Lookup(t.Context(), "a"); !held || err != nil {
			t.Errorf("held after the late grant: %v, %v", held, err)
		}
	})
}

// A late reply that leaves open whether it was a grant is released as well.
func TestDetachedLateErrorIsReleased(t *testing.T) {
	detachedFaults(t, func(t *testing.T, store driver.Store, faults *faultstore.Store) {
		release := make(chan struct{})
		faults.Set(faultstore.Acquire, func(_ context.Context, _ faultstore.Op, apply func()) error {
			<-release
			apply()
			return faultstore.ErrReplyLost
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _ = store.Acquire(ctx, ownerRequest)
		_, _ = store.Release(t.Context(), ownerRelease)
		close(release)
		synctest.Wait()
		if _, held, err := store.Lookup(t.Context(), "a"); held || err != nil {
			t.Errorf("held: %v, %v", held, err)
		}
	})
}

// Close waits for calls that were left, for 3 s at most, and later calls return ErrClosed.
func TestDetachedClose(t *testing.T) {
	for _, takes := range []time.Duration{time.Second, time.Hour} {
		detachedFaults(t, func(t *testing.T, store driver.Store, faults *faultstore.Store) {
			release := make(chan struct{})
			faults.Set(faultstore.Acquire, hangUntil(release))
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_, _ = store.Acquire(ctx, ownerRequest)
			time.AfterFunc(takes, func() { close(release) })
			began := time.Now()
			if err := store.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			if took := time.Since(began); took != min(takes, 3*time.Second) {
				t.Errorf("Close took %v for a call that takes %v", took, takes)
			}
			if _, err := store.Acquire(t.Context(), ownerRequest); err != driver.ErrClosed {
				t.Errorf("Acquire after Close: %v", err)
			}
			for _, err := range store.List(t.Context(), "") {
				if err != driver.ErrClosed {
					t.Errorf("List after Close: %v", err)
				}
			}
			if err := store.Close(); err != nil {
				t.Errorf("second Close: %v", err)
			}
			time.Sleep(takes)
		})
	}
}

// A hangingStore has a List and a Close that hang until release is closed.
type hangingStore struct {
	*memstore.Store
	release chan struct{}
}

func (s hangingStore) List(context.Context, string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		if yield(driver.Record{Name: "a"}, nil) {
			<-s.release
		}
	}
}

func (s hangingStore) Close() error {
	<-s.release
	return s.Store.Close()
}

// An endlessStore has a List without an end.
type endlessStore struct{ *memstore.Store }

func (s endlessStore) List(context.Context, string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		for yield(driver.Record{Name: "a"}, nil) {
		}
	}
}

// A List that its context has cut short ends with an error, and not as if it were complete.
func TestDetachedListIsCutShort(t *testing.T) {
	store := driver.Detach(endlessStore{memstore.New()})
	for range 50_000 { // It takes a goroutine that is faster than its caller.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var last error
		for _, err := range store.List(ctx, "") {
			last = err
		}
		if last != context.Canceled {
			t.Fatalf("the last error is %v", last)
		}
	}
}

// A List that hangs between two records ends with its context, and a Close that hangs is reported.
func TestDetachedListAndCloseOfAHungStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hanging := hangingStore{memstore.New(), make(chan struct{})}
		store := driver.Detach(hanging)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		var names int
		var last error
		for rec, err := range store.List(ctx, "") {
			if last = err; rec.Name == "a" {
				names++
			}
		}
		if names != 1 || last != context.DeadlineExceeded || time.Since(began) != time.Second {
			t.Errorf("List: %d records, %v, after %v", names, last, time.Since(began))
		}
		for range store.List(t.Context(), "") {
			break // leaves no goroutine
		}
		began = time.Now()
		if err := store.Close(); err == nil || time.Since(began) != 3*time.Second {
			t.Errorf("Close: %v after %v", err, time.Since(began))
		}
		close(hanging.release)
	})
}

// A store with none of the optional interfaces does not gain them.
func TestDetachedOptionalInterfaces(t *testing.T) {
	store := driver.Detach(struct{ driver.Store }{memstore.New()})
	store.(driver.Notifier).Notify(func(driver.Notice) {})()
}

// A store that is no Notifier may not know what a claim is: it gets none.
func TestDetachedClaim(t *testing.T) {
	store := driver.Detach(struct{ driver.Store }{memstore.New()})
	req := ownerRequest
	req.Claim = true
	if res, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a claim: %+v, %v", res, err)
	}
}
