package once_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/once"
)

// An overdueStore has kept all names for too long.
type overdueStore struct {
	driver.Store
	overdue     time.Duration
	unbreakable bool
}

func (s *overdueStore) Break(ctx context.Context, req driver.BreakRequest) (driver.Record, bool, error) {
	if s.unbreakable {
		return driver.Record{}, false, nil
	}
	return s.Store.Break(ctx, req)
}

func (s *overdueStore) Lookup(ctx context.Context, name string) (driver.Record, bool, error) {
	rec, held, err := s.Store.Lookup(ctx, name)
	if rec.Kept {
		rec.Overdue = s.overdue
	}
	return rec, held, err
}

// A mark that a store has kept for longer than the clocks of replicas may differ counts no more.
// The next run that succeeds replaces it.
func TestOverdueMark(t *testing.T) {
	t.Parallel()
	for _, atMostOnce := range []bool{false, true} {
		store := &overdueStore{Store: memstore.NewCoarse(time.Second)}
		ctx, locks := t.Context(), storetest.Client(t, store, "a")
		o := &once.Options{Skew: time.Minute, AtMostOnce: atMostOnce}
		run := func(verdict once.Verdict, fails error) {
			t.Helper()
			result, err := once.Within(ctx, locks, "job", time.Hour, o, func(context.Context) error { return fails })
			if result.Verdict != verdict || !errors.Is(err, fails) {
				t.Errorf("%v, %v; want %v, %v", result, err, verdict, fails)
			}
		}
		run(once.Ran, nil)
		first, _, _ := store.Store.Lookup(ctx, "job/done")
		store.overdue = time.Minute + store.Guarantees().Grain
		run(once.Done, nil)
		store.overdue++
		if !atMostOnce {
			run(once.Ran, errors.New("disk full"))
		}
		run(once.Ran, nil)
		second, held, err := store.Store.Lookup(ctx, "job/done")
		if !held || err != nil || second.Token <= first.Token {
			t.Errorf("the mark is %v, %v, after %v", second, err, first)
		}
		store.overdue = 0
		run(once.Done, nil)
	}
}

// A run is not reported as recorded because an overdue mark is still there, which counts no more.
func TestOverdueMarkThatStays(t *testing.T) {
	t.Parallel()
	for _, atMostOnce := range []bool{false, true} {
		store := &overdueStore{Store: memstore.NewCoarse(time.Second)}
		ctx, locks := t.Context(), storetest.Client(t, store, "a")
		o := &once.Options{Skew: time.Minute, AtMostOnce: atMostOnce}
		runs := 0
		run := func() (once.Result, error) {
			return once.Within(ctx, locks, "job", time.Hour, o, func(context.Context) error { runs++; return nil })
		}
		if result, err := run(); result.Verdict != once.Ran || err != nil {
			t.Errorf("%v, %v", result, err)
		}
		store.overdue, store.unbreakable = time.Hour, true
		result, err := run()
		switch {
		case atMostOnce && (result.Verdict == once.Ran || result.Verdict == once.Done || err == nil || runs != 1):
			t.Errorf("%v, %v after %d runs; want an error, and no second run", result, err, runs)
		case !atMostOnce && (result.Verdict != once.Ran || !errors.Is(err, once.ErrNotRecorded)):
			t.Errorf("%v, %v; want ErrNotRecorded", result, err)
		}
	}
}
