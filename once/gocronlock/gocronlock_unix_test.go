//go:build unix

package gocronlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/once"
	"github.com/holdfast-go/holdfast/once/gocronlock"
)

func TestMain(m *testing.M) {
	storetest.Main(m, map[string]storetest.Role{"locker": roleLocker})
}

// roleLocker runs a job at every second, shared with other processes by a locker, until the input
// of the process ends. It prints the ticks that it has run.
func roleLocker(args []string) error {
	locks, err := holdfast.Open(context.Background(), args[0], nil)
	if err != nil {
		return err
	}
	defer locks.Close()
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(gocronlock.NewLocker(locks, time.Second, nil)))
	if err != nil {
		return err
	}
	_, err = s.NewJob(gocron.CronJob("* * * * * *", true), gocron.NewTask(func() { fmt.Println("run") }),
		gocron.WithName("job"),
		gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
			var reason *gocronlock.NotRunError
			if !errors.As(err, &reason) {
				fmt.Println("failed:", err)
			}
		})),
	)
	if err != nil {
		return err
	}
	s.Start()
	storetest.UntilEOF()
	return s.Shutdown()
}

// TestThreeSchedulers: three processes with a real scheduler each share a job: no
// more runs than there are ticks, whose marks are in the store.
func TestThreeSchedulers(t *testing.T) {
	storetest.EachShared(t, func(t *testing.T, s *storetest.Store) {
		var mu sync.Mutex
		runs := 0
		hear := func(line string) {
			mu.Lock()
			defer mu.Unlock()
			if runs++; line != "run" {
				t.Error(line)
			}
		}
		var processes []*storetest.Process
		for range 3 {
			processes = append(processes, storetest.Start(t, hear, "locker", s.URL()))
		}
		storetest.Eventually(t, "the job has run 4 times", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return runs >= 4
		})
		for _, p := range processes {
			p.Finish()
		}
		ticks := 0
		for rec, err := range s.Open(t, nil).List(t.Context(), "job@") {
			tick, bad := time.Parse(time.RFC3339Nano, strings.TrimPrefix(rec.Name, "job@"))
			if err != nil || bad != nil || !rec.Kept || tick.Nanosecond() != 0 {
				t.Errorf("%+v, %v, is not the mark of a tick", rec, errors.Join(err, bad))
			}
			ticks++
		}
		if runs != ticks {
			t.Errorf("%d runs at %d ticks", runs, ticks)
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
