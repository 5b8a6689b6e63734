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
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/once"
	"github.com/holdfast-go/holdfast/once/gocronlock"
)

func TestMain(m *testing.M) {
	storetest.Main(m, map[string]storetest.Role{"locker": roleLocker, "elector": roleElector})
}

// TestElector: a candidate may run jobs while it leads, and not before or after.
func TestElector(t *testing.T) {
	store := memstore.New()
	defer store.Close()
	locks := holdfast.New(store, nil)
	defer locks.Close()
	e := election.New(locks, "office", nil)
	elector := gocronlock.NewElector(e)
	refuses := func() {
		t.Helper()
		if err := elector.IsLeader(t.Context()); !errors.Is(err, election.ErrNotLeading) {
			t.Errorf("one who does not lead: %v", err)
		}
	}
	refuses()
	err := e.Run(t.Context(), func(ctx context.Context, _ election.Term) error { return elector.IsLeader(ctx) })
	if err != nil {
		t.Errorf("the leader: %v", err)
	}
	refuses()
}

// runScheduler runs a job at every second until the input of the process ends.
func runScheduler(task func(), scheduler gocron.SchedulerOption, job ...gocron.JobOption) error {
	s, err := gocron.NewScheduler(scheduler)
	if err != nil {
		return err
	}
	if _, err := s.NewJob(gocron.CronJob("* * * * * *", true), gocron.NewTask(task), job...); err != nil {
		return err
	}
	s.Start()
	storetest.UntilEOF()
	return s.Shutdown()
}

// roleLocker shares a job with other processes by a locker, and prints the ticks that it has run.
func roleLocker(args []string) error {
	locks, err := holdfast.Open(context.Background(), args[0], nil)
	if err != nil {
		return err
	}
	defer locks.Close()
	return runScheduler(
		func() { fmt.Println("run") },
		gocron.WithDistributedLocker(gocronlock.NewLocker(locks, time.Second, nil)),
		gocron.WithName("job"),
		gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
			var reason *gocronlock.NotRunError
			if !errors.As(err, &reason) {
				fmt.Println("failed:", err)
			}
		})),
	)
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

// roleElector stands for leader, and prints a line when it has run the job.
func roleElector(args []string) error {
	locks, err := holdfast.Open(context.Background(), args[0], nil)
	if err != nil {
		return err
	}
	defer locks.Close()
	e := election.New(locks, "office", &election.Options{TTL: time.Second})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go e.Run(ctx, func(ctx context.Context, _ election.Term) error {
		<-ctx.Done()
		return nil
	})
	return runScheduler(func() { fmt.Println("run") }, gocron.WithDistributedElector(gocronlock.NewElector(e)))
}

// TestSchedulersWithElector: of three processes one runs the job, and another
// when that one is killed.
func TestSchedulersWithElector(t *testing.T) {
	storetest.EachShared(t, func(t *testing.T, s *storetest.Store) {
		var mu sync.Mutex
		last := -1
		processes := make([]*storetest.Process, 3)
		for i := range processes {
			processes[i] = storetest.Start(t, func(line string) {
				mu.Lock()
				defer mu.Unlock()
				if line != "run" {
					t.Error(line)
				}
				last = i
			}, "elector", s.URL())
		}
		leader := func() int {
			mu.Lock()
			defer mu.Unlock()
			return last
		}
		storetest.Eventually(t, "somebody runs the job", func() bool { return leader() >= 0 })
		first := leader()
		processes[first].Kill()
		storetest.Eventually(t, "another runs it", func() bool { return leader() != first })
		for i, p := range processes {
			if i != first {
				p.Finish()
			}
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
