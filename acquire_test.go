package holdfast_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

func TestAcquireAndRelease(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), &holdfast.Config{Holder: "me", Prefix: "app:"})
		metadata := map[string]string{"job": "7"}
		lock := acquire(t, c, "a", &holdfast.Options{Metadata: metadata})
		if lock.Name() != "a" || lock.Holder() != "me" || lock.Token() <= 0 || lock.Metadata()["job"] != "7" {
			t.Errorf("lock is %q by %q, token %d, metadata %v", lock.Name(), lock.Holder(), lock.Token(), lock.Metadata())
		}
		if rec := lookup(t, c, "a"); rec.Name != "a" || rec.Holder != "me" || rec.Token != lock.Token() || rec.Metadata["job"] != "7" {
			t.Errorf("Lookup: %+v", rec)
		}
		if records, _ := c.Store().Lookup(ctx, "app:a"); len(records) != 1 {
			t.Error("the store does not know the name with its prefix")
		}
		if err := lock.Err(); err != nil {
			t.Errorf("Err while held: %v", err)
		}
		metadata["job"], lock.Metadata()["job"] = "8", "9"
		if rec := lookup(t, c, "a"); rec.Metadata["job"] != "7" || lock.Metadata()["job"] != "7" {
			t.Error("the metadata changed with the caller's map")
		}
		release(t, lock)
		release(t, lock) // harmless
		wantErr(t, lock.Err(), holdfast.ErrReleased)
		wantErr(t, context.Cause(lock.Context()), holdfast.ErrReleased)
		free(t, c, "a")
		if next := acquire(t, c, "a", nil); next.Token() <= lock.Token() {
			t.Errorf("token %d after %d", next.Token(), lock.Token())
		}
	})
}

func TestSecondReleaseDoesNotFreeTheSuccessor(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		first := acquire(t, c, "a", nil)
		release(t, first)
		second := acquire(t, c, "a", nil)
		release(t, first)
		if rec := lookup(t, c, "a"); rec.Token != second.Token() {
			t.Errorf("after a second release of the first: %+v", rec)
		}
	})
}

func TestTryAcquireTellsWhoHoldsIt(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		mine := open(t, store, &holdfast.Config{Holder: "me"})
		other := open(t, store, &holdfast.Config{Holder: "other"})
		lock := acquire(t, mine, "a", nil)
		for _, c := range []*holdfast.Client{mine, other} {
			_, err := c.TryAcquire(ctx, "a", nil)
			wantErr(t, err, holdfast.ErrHeld)
			var held *holdfast.HeldError
			if !errors.As(err, &held) {
				t.Fatalf("no HeldError: %v", err)
			}
			rec := held.Record
			if rec.Name != "a" || rec.Holder != "me" || rec.Token != lock.Token() || rec.Remaining <= 0 || rec.Remaining > holdfast.DefaultTTL {
				t.Errorf("record %+v", rec)
			}
			if held.Self != (c == mine) || c == mine != strings.Contains(err.Error(), "this very client, since 2000-01-01T00:00:00Z") {
				t.Errorf("Self is %v, error %v", held.Self, err)
			}
			if errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "held by me") {
				t.Errorf("error %v", err)
			}
		}
	})
}

func TestWaitersAreServedInOrder(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		first := acquire(t, c, "a", nil)
		var order []int
		var group sync.WaitGroup
		for i := range 10 {
			group.Go(func() {
				lock := acquire(t, c, "a", nil)
				order = append(order, i)
				release(t, lock)
			})
			synctest.Wait()
		}
		release(t, first)
		group.Wait()
		if want := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}; !slices.Equal(order, want) {
			t.Errorf("served in order %v", order)
		}
	})
}

func TestReleaseWakesAnotherClientAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		a, b := open(t, store, nil), open(t, store, nil)
		first := acquire(t, a, "a", nil)
		released := make(chan time.Time, 1)
		go func() {
			time.Sleep(10 * time.Second)
			released <- time.Now()
			release(t, first)
		}()
		acquire(t, b, "a", nil)
		if late := time.Since(<-released); late > 0 {
			t.Errorf("woken %v after the release", late)
		}
	})
}

// A notice that is lost, or never sent, costs one pause at most.
func TestWaiterNeedsNoNotice(t *testing.T) {
	lost := func(context.Context, faultstore.Op, func()) error { return nil }
	cases := map[string]struct {
		store func() driver.Store
		bound time.Duration
	}{
		"lost notices of a queue": {func() driver.Store {
			s := faultstore.Wrap(memstore.New())
			s.Set(faultstore.Notice, lost)
			return s
		}, 5 * time.Second / 3},
		"lost notices without a queue": {func() driver.Store {
			s := faultstore.Wrap(memstore.New()).Unfair()
			s.Set(faultstore.Notice, lost)
			return s
		}, 2 * time.Second},
		"no notices": {func() driver.Store { return faultstore.Wrap(memstore.New()).Silent() }, 250 * ms},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context) {
				store := test.store()
				a, b := open(t, store, nil), open(t, store, nil)
				first := acquire(t, a, "a", nil)
				released := make(chan time.Time, 1)
				go func() {
					time.Sleep(20*time.Second + 123*ms)
					release(t, first)
					released <- time.Now()
				}()
				acquire(t, b, "a", nil)
				if late := time.Since(<-released); late > test.bound {
					t.Errorf("taken %v after the release, want at most %v", late, test.bound)
				}
			})
		})
	}
}

// A notice that comes before the reply to the request that made the place is not missed.
func TestNoticeBeforeTheReply(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		first := acquire(t, open(t, store.Store, nil), "a", nil)
		store.Once(faultstore.Acquire, func(_ context.Context, _ faultstore.Op, apply func()) error {
			apply()
			release(t, first)
			return nil
		})
		began := time.Now()
		acquire(t, c, "a", nil)
		if late := time.Since(began); late > 0 {
			t.Errorf("taken %v after the release", late)
		}
	})
}

func TestWaiterTakesOverAtExpiry(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		crashed := driver.Request{Name: "a", Owner: "gone", Holder: "gone", TTL: 10 * time.Second}
		if res, err := store.Acquire(ctx, crashed); err != nil || !res.Granted {
			t.Fatal(res, err)
		}
		began := time.Now()
		acquire(t, open(t, store, nil), "a", nil)
		if took := time.Since(began); took < 10*time.Second || took > 10*time.Second+10*ms {
			t.Errorf("taken over after %v, want just after 10s", took)
		}
	})
}

func TestWaitIsBounded(t *testing.T) {
	cases := map[string]struct {
		options holdfast.Options
		ctx     time.Duration
		took    time.Duration
		errs    []error
	}{
		"by Wait":        {holdfast.Options{Wait: 3 * time.Second}, time.Minute, 3 * time.Second, []error{holdfast.ErrHeld, context.DeadlineExceeded}},
		"by the context": {holdfast.Options{Wait: time.Hour}, 4 * time.Second, 4 * time.Second, []error{holdfast.ErrHeld, context.DeadlineExceeded}},
		"by MaxAttempts": {holdfast.Options{MaxAttempts: 1}, time.Minute, 0, []error{holdfast.ErrHeld}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context) {
				store := memstore.New()
				acquire(t, open(t, store, &holdfast.Config{Holder: "first"}), "a", nil)
				ctx, cancel := context.WithTimeout(ctx, test.ctx)
				defer cancel()
				began := time.Now()
				_, err := open(t, store, nil).Acquire(ctx, "a", &test.options)
				wantErr(t, err, test.errs...)
				if took := time.Since(began); took != test.took {
					t.Errorf("waited %v, want %v", took, test.took)
				}
				if text := err.Error(); !strings.Contains(text, "held by first") || !strings.HasPrefix(text, `holdfast: acquire "a": `) {
					t.Errorf("error text %q", text)
				}
			})
		})
	}
}

func TestCancelledWaiterDelaysNobody(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		a, b := open(t, store, nil), open(t, store, nil)
		first := acquire(t, a, "a", nil)
		var group sync.WaitGroup
		var cancels []context.CancelFunc
		for range 5 { // the first of them is the head, the others wait
			ctx, cancel := context.WithCancel(ctx)
			cancels = append(cancels, cancel)
			group.Go(func() {
				_, err := b.Acquire(ctx, "a", nil)
				wantErr(t, err, context.Canceled, holdfast.ErrHeld)
			})
			synctest.Wait()
		}
		last := make(chan time.Time, 1)
		group.Go(func() {
			acquire(t, b, "a", nil)
			last <- time.Now()
		})
		synctest.Wait()
		for _, cancel := range cancels {
			cancel()
			synctest.Wait()
		}
		released := time.Now()
		release(t, first)
		group.Wait()
		if late := (<-last).Sub(released); late > 0 {
			t.Errorf("the last waiter got the lock %v after the release", late)
		}
	})
}

// A waiter that becomes the head at the moment when it gives up hands the queue off.
func TestCancelledAsHead(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		for range 100 {
			first := acquire(t, c, "a", nil)
			limited, cancel := context.WithCancel(ctx)
			var group sync.WaitGroup
			group.Go(func() {
				if lock, err := c.Acquire(limited, "a", nil); err == nil {
					release(t, lock)
				}
			})
			synctest.Wait()
			group.Go(func() { release(t, acquire(t, c, "a", nil)) })
			synctest.Wait()
			cancel()
			release(t, first)
			group.Wait()
		}
	})
}

func TestEndedContextAcquiresNothing(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, err := c.Acquire(ended, "a", nil)
		wantErr(t, err, context.Canceled)
		_, err = c.TryAcquire(ended, "a", nil)
		wantErr(t, err, context.Canceled)
		free(t, c, "a")
	})
}

func TestInvalidArguments(t *testing.T) {
	names := map[string]string{
		"empty": "", "too long": strings.Repeat("x", 256), "NUL": "a\x00b", "newline": "a\nb", "not UTF-8": "a\xffb", "C1 control": "a\u0085b",
	}
	options := map[string]holdfast.Options{
		"TTL negative":      {TTL: -1},
		"TTL tiny":          {TTL: 1},
		"TTL of 100 years":  {TTL: 100 * 365 * 24 * time.Hour},
		"Wait negative":     {Wait: -1},
		"MaxHold negative":  {MaxHold: -1},
		"MaxHold too short": {MaxHold: driver.MinTTL - 1},
		"attempts negative": {MaxAttempts: -1},
		"metadata too big":  {Metadata: map[string]string{"k": strings.Repeat("v", 1024)}},
		"metadata key":      {Metadata: map[string]string{"": "v"}},
		"metadata control":  {Metadata: map[string]string{"k": "\x1b[31m"}},
	}
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		for what, name := range names {
			if _, err := c.Acquire(ctx, name, nil); !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("name %s: %v", what, err)
			}
			if _, err := c.Lookup(ctx, name); !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("Lookup of name %s: %v", what, err)
			}
		}
		for what, o := range options {
			if _, err := c.Acquire(ctx, "a", &o); !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("%s: %v", what, err)
			}
		}
		for _, name := range []string{"../../etc", strings.Repeat("é", 127), "🔒", "A", "a"} {
			if _, err := c.Acquire(ctx, name, nil); err != nil {
				t.Errorf("name %q: %v", name, err)
			}
		}
		bad := open(t, memstore.New(), &holdfast.Config{Holder: "a\nb"})
		_, err := bad.Acquire(ctx, "a", nil)
		wantErr(t, err, holdfast.ErrInvalid)
	})
}

// endedLater is a context that ends between the check of the arguments and the first request.
type endedLater struct {
	context.Context
	calls int
}

func (c *endedLater) Err() error {
	if c.calls++; c.calls == 1 {
		return nil
	}
	return context.Canceled
}

func TestCanceledBeforeTheFirstRequest(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		time.Sleep(time.Hour)
		_, err := c.Acquire(&endedLater{Context: ctx}, "a", nil)
		wantErr(t, err, context.Canceled, holdfast.ErrUnavailable)
		if strings.Contains(err.Error(), "1h") {
			t.Errorf("%v, though Acquire has just begun", err)
		}
	})
}
