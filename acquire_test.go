package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"testing"
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
		next := acquire(t, c, "a", nil)
		release(t, lock)
		if rec := lookup(t, c, "a"); rec.Token != next.Token() || next.Token() <= lock.Token() {
			t.Errorf("token %d after %d, and after another release of the first %d", next.Token(), lock.Token(), rec.Token)
		}
	})
}

func TestTryAcquireTellsWhoHoldsIt(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		mine, other := open(t, store, &holdfast.Config{Holder: "me"}), open(t, store, nil)
		lock := acquire(t, mine, "a", nil)
		for _, c := range []*holdfast.Client{mine, other} {
			err := failure(c.TryAcquire(ctx, "a", nil))
			wantErr(t, err, holdfast.ErrHeld)
			held := heldError(t, err)
			rec := held.Record
			if rec.Name != "a" || rec.Holder != "me" || rec.Token != lock.Token() || rec.Remaining <= 0 || rec.Remaining > holdfast.DefaultTTL {
				t.Errorf("record %+v", rec)
			}
			text := err.Error()
			if held.Self != (c == mine) || c == mine != strings.Contains(text, "this very client, since 2000-01-01T00:00:00Z") {
				t.Errorf("Self is %v, error %v", held.Self, err)
			}
			if errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(text, `held by "me"`) {
				t.Errorf("error %v", err)
			}
		}
	})
}

// The callers of a Client that wait behind a lock that a try, or Adopt, has got are served at its
// release, also on a store without notices.
func TestServedBehindATry(t *testing.T) {
	for _, adopts := range []bool{false, true} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			store := faultstore.Wrap(memstore.New()).Silent()
			c := open(t, store, &holdfast.Config{Backoff: holdfast.Backoff{Min: time.Hour}})
			lock, err := c.TryAcquire(ctx, "a", &holdfast.Options{Detached: adopts})
			noErr(t, err)
			if adopts {
				lock = adopt(t, c, handOver(t, lock), nil)
			}
			got := startWaiters(t, c, "a", nil, 1)
			time.Sleep(time.Second)
			release(t, lock)
			noErr(t, within(t, 0, time.Second, func() error { return (<-got).Release() }))
		})
	}
}

// A waiter of another Client gets the lock at the release. If the notice is lost, or never sent, it
// gets it after one pause at most.
func TestWaiterNeedsNoNotice(t *testing.T) {
	for name, test := range map[string]struct {
		kind   string
		notice faultstore.Fault
		bound  time.Duration
	}{
		"a notice of a queue":          {"queue", nil, 0},
		"a notice without a queue":     {"no queue", nil, 0},
		"lost notices of a queue":      {"queue", loseNotice, 5 * time.Second / 3},
		"lost notices without a queue": {"no queue", loseNotice, 2 * time.Second},
		"no notices":                   {"no notices", nil, 250 * ms},
	} {
		virtualRun(t, name, func(t *testing.T, ctx context.Context) {
			store := kinds[test.kind](faultstore.Wrap(memstore.New()))
			store.Set(faultstore.Notice, test.notice)
			first := acquire(t, open(t, store, nil), "a", nil)
			var released time.Time
			time.AfterFunc(20*time.Second+123*ms, func() { released = time.Now(); release(t, first) })
			acquire(t, open(t, store, nil), "a", nil)
			if late := time.Since(released); late > test.bound {
				t.Errorf("taken %v after the release, want at most %v", late, test.bound)
			}
		})
	}
}

// The pauses of a waiter without a notice grow to Backoff.Max. Each is drawn from the upper half,
// so that 200 of them take about three quarters of the longest time.
func TestPausesOfAWaiter(t *testing.T) {
	for _, kind := range []string{"no queue", "no notices"} {
		for _, greatest := range []time.Duration{250 * ms, time.Second} {
			virtualRun(t, kind+" "+greatest.String(), func(t *testing.T, ctx context.Context) {
				store := kinds[kind](faultstore.Wrap(memstore.New()))
				acquire(t, open(t, store.Store, nil), "a", &holdfast.Options{TTL: 24 * time.Hour})
				c := open(t, store, &holdfast.Config{Backoff: holdfast.Backoff{Max: greatest}})
				err := within(t, 200*greatest*65/100, 200*greatest*85/100, func() error {
					return failure(c.Acquire(ctx, "a", &holdfast.Options{MaxAttempts: 200}))
				})
				wantErr(t, err, holdfast.ErrHeld)
			})
		}
	}
}

func TestWaiterTakesOverAtExpiry(t *testing.T) {
	for name, kind := range kinds {
		virtualRun(t, name, func(t *testing.T, ctx context.Context) {
			store := kind(faultstore.Wrap(memstore.New()))
			crashed := driver.Request{Name: "a", Owner: "gone", Holder: "gone", TTL: 10 * time.Second}
			if res, err := store.Acquire(ctx, crashed); err != nil || !res.Granted {
				t.Fatal(res, err)
			}
			c := open(t, store, nil)
			noErr(t, within(t, 10*time.Second, 10*time.Second+10*ms, func() error { return failure(c.Acquire(ctx, "a", nil)) }))
		})
	}
}

func TestInvalidArguments(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		for what, name := range map[string]string{
			"empty": "", "too long": strings.Repeat("x", 256), "NUL": "a\x00b", "newline": "a\nb",
			"not UTF-8": "a\xffb", "C1 control": "a\u0085b",
		} {
			for _, err := range []error{failure(c.Acquire(ctx, name, nil)), failure(c.Lookup(ctx, name))} {
				if !errors.Is(err, holdfast.ErrInvalid) {
					t.Errorf("name %s: %v", what, err)
				}
			}
		}
		for what, o := range map[string]holdfast.Options{
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
			"Limit negative":    {Limit: -1},
			"Limit too great":   {Limit: driver.Shared + 1},
			"two limits":        {Shared: true, Limit: 2},
			"Reentrant, Shared": {Shared: true, Reentrant: true},
			"Reentrant, Limit":  {Limit: 2, Reentrant: true},
		} {
			if _, err := c.Acquire(ctx, "a", &o); !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("%s: %v", what, err)
			}
		}
		for _, name := range []string{"../../etc", strings.Repeat("é", 127), "🔒", "A", "a"} {
			acquire(t, c, name, nil)
		}
	})
}
