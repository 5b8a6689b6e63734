package gocronlock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/once"
	"github.com/holdfast-go/holdfast/once/gocronlock"
)

// late is a locker of a replica that is late.
type late struct {
	gocron.Locker
	by time.Duration
}

func (l late) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	time.Sleep(l.by)
	return l.Locker.Lock(ctx, job)
}

// TestThreeSchedulers: three replicas with a real scheduler each share a job: each tick runs once,
// and its mark is in the store.
func TestThreeSchedulers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var runs atomic.Int32
		for i := range 3 {
			locker := gocronlock.NewLocker(storetest.Client(t, store, ""), time.Second, nil)
			s, err := gocron.NewScheduler(gocron.WithDistributedLocker(late{locker, time.Duration(i) * 7 * time.Millisecond}))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Shutdown()
			_, err = s.NewJob(gocron.CronJob("* * * * * *", true), gocron.NewTask(func() { runs.Add(1) }), gocron.WithName("job"),
				gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
					if reason := (*gocronlock.NotRunError)(nil); !errors.As(err, &reason) {
						t.Error(err)
					}
				})))
			if err != nil {
				t.Fatal(err)
			}
			s.Start()
		}
		time.Sleep(time.Minute + time.Second/4) // The marks of the last ticks are kept for longer.
		ticks := 0
		for rec, err := range store.List(t.Context(), "job@") {
			tick, bad := time.Parse(time.RFC3339Nano, strings.TrimPrefix(rec.Name, "job@"))
			if err != nil || bad != nil || !rec.Kept || tick.Nanosecond() != 0 {
				t.Errorf("%+v, %v, is not the mark of a tick", rec, errors.Join(err, bad))
			}
			ticks++
		}
		if runs.Load() != 60 || ticks != 60 {
			t.Errorf("%d runs of 60, %d ticks", runs.Load(), ticks)
		}
	})
}

// TestLocker: the second Lock for a tick fails with the reason, while the first runs and after
// that.
func TestLocker(t *testing.T) {
	store := memstore.New()
	defer store.Close()
	a, b := holdfast.New(store, nil), holdfast.New(store, nil)
	defer a.Close()
	defer b.Close()
	const interval = 10_000 * time.Hour // so that the test is within one tick
	ctx, cancel := context.WithCancel(t.Context())
	lock, err := gocronlock.NewLocker(a, interval, nil).Lock(ctx, "job")
	if err != nil {
		t.Fatal(err)
	}
	other := gocronlock.NewLocker(b, interval, nil)
	refused(t, other, once.Busy)
	cancel() // the job is removed while it runs
	if err := lock.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	refused(t, other, once.Done)
	if _, err := gocronlock.NewLocker(b, 0, nil).Lock(t.Context(), "job"); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("an interval of 0: %v", err)
	}
}

func refused(t *testing.T, locker gocron.Locker, want once.Verdict) {
	t.Helper()
	_, err := locker.Lock(t.Context(), "job")
	var reason *gocronlock.NotRunError
	if !errors.As(err, &reason) || reason.Result.Verdict != want {
		t.Errorf("%v, want %v", err, want)
	}
}
