//go:build unix

package cronlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/once"
	"github.com/holdfast-go/holdfast/once/cronlock"
)

func TestMain(m *testing.M) {
	storetest.Main(m, map[string]storetest.Role{"cron": roleCron})
}

// roleCron runs a job at every second until its input ends, and prints the activations at which it
// ran.
func roleCron(args []string) error {
	locks, err := holdfast.Open(context.Background(), args[0], nil)
	if err != nil {
		return err
	}
	defer locks.Close()
	schedule, err := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse("* * * * * *")
	if err != nil {
		return err
	}
	c := cron.New()
	o := &cronlock.Options{Report: func(result once.Result, err error) {
		switch {
		case err != nil:
			fmt.Println("failed:", err)
		case result.Verdict == once.Ran:
			fmt.Println("ran", result.Slot.Start.Unix())
		}
	}}
	wrap := cronlock.Once(locks, "job", schedule, o)
	c.Schedule(schedule, cron.NewChain(wrap).Then(cron.FuncJob(func() { fmt.Println("run") })))
	c.Start()
	storetest.UntilEOF()
	<-c.Stop().Done()
	return nil
}

// TestThreeSchedulers: three processes with a real scheduler each share a job:
// each activation that runs, runs once.
func TestThreeSchedulers(t *testing.T) {
	storetest.EachShared(t, func(t *testing.T, s *storetest.Store) {
		var mu sync.Mutex
		runs, ran := 0, map[int64]int{}
		hear := func(line string) {
			mu.Lock()
			defer mu.Unlock()
			var at int64
			if line == "run" {
				runs++
			} else if _, err := fmt.Sscanf(line, "ran %d", &at); err == nil {
				ran[at]++
			} else {
				t.Error(line)
			}
		}
		var processes []*storetest.Process
		for range 3 {
			processes = append(processes, storetest.Start(t, hear, "cron", s.URL()))
		}
		storetest.Eventually(t, "the job has run 4 times", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(ran) >= 4
		})
		for _, p := range processes {
			p.Finish()
		}
		for at, n := range ran {
			if n != 1 {
				t.Errorf("%d runs at %d", n, at)
			}
		}
		if runs != len(ran) {
			t.Errorf("%d runs at %d activations", runs, len(ran))
		}
	})
}

// TestSlot: the activation that is past, up to the next.
func TestSlot(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	at := func(month time.Month, day, hour, minute int) time.Time {
		return time.Date(2026, month, day, hour, minute, 0, 0, berlin)
	}
	for _, test := range []struct {
		spec            string
		now, start, end time.Time
	}{
		{"0 3 * * *", at(11, 21, 3, 0), at(11, 21, 3, 0), at(11, 22, 3, 0)},
		{"0 3 * * *", at(11, 21, 2, 59), at(11, 20, 3, 0), at(11, 21, 3, 0)},
		{"30 3 * * *", at(10, 25, 12, 0), at(10, 25, 3, 30), at(10, 26, 3, 30)}, // 25 hours from the day before
		{"*/15 * * * *", at(11, 21, 3, 44), at(11, 21, 3, 30), at(11, 21, 3, 45)},
		{"0 0 1 1 *", at(11, 21, 0, 0), at(1, 1, 0, 0), at(1, 1, 0, 0).AddDate(1, 0, 0)},
		{"0 0 29 2 *", at(11, 21, 0, 0), time.Date(2024, 2, 29, 0, 0, 0, 0, berlin), time.Date(2028, 2, 29, 0, 0, 0, 0, berlin)},
		{"@every 90m", at(11, 21, 3, 0), at(11, 21, 2, 30), at(11, 21, 4, 0)},
	} {
		schedule, err := cron.ParseStandard("CRON_TZ=Europe/Berlin " + test.spec)
		if err != nil {
			t.Fatal(err)
		}
		slot, err := cronlock.Slot(schedule, test.now)
		if err != nil || !slot.Start.Equal(test.start) || !slot.End.Equal(test.end) {
			t.Errorf("%q at %v: %v to %v, %v; want %v to %v", test.spec, test.now, slot.Start, slot.End, err, test.start, test.end)
		}
	}
	never, err := cron.ParseStandard("0 0 30 2 *")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cronlock.Slot(never, time.Now()); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("February 30th: %v", err)
	}
}

// TestJob: work that fails is not done; its context is that of the options.
func TestJob(t *testing.T) {
	store := memstore.New()
	defer store.Close()
	locks := holdfast.New(store, nil)
	defer locks.Close()
	schedule, err := cron.ParseStandard("@yearly")
	if err != nil {
		t.Fatal(err)
	}
	ours := errors.New("disk full")
	var results []string
	ctx, cancel := context.WithCancel(t.Context())
	o := &cronlock.Options{Context: ctx, Report: func(result once.Result, err error) {
		results = append(results, fmt.Sprint(result.Verdict, " ", err))
	}}
	fails := true
	job := cronlock.Job(locks, "job", schedule, o, func(ctx context.Context) error {
		if fails {
			return ours
		}
		cancel()
		<-ctx.Done()
		return nil
	})
	job.Run()
	fails = false
	job.Run()
	job.Run()
	if got := fmt.Sprintf("%q", results[:2]); got != `["ran disk full" "ran <nil>"]` || len(results) != 3 {
		t.Errorf("reported: %q", results)
	}
}
