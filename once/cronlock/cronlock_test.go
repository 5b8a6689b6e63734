package cronlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/once"
	"github.com/holdfast-go/holdfast/once/cronlock"
)

// TestThreeSchedulers: three replicas with a real scheduler each share a job: each activation runs
// once.
func TestThreeSchedulers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		schedule, err := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse("* * * * * *")
		if err != nil {
			t.Fatal(err)
		}
		store := memstore.New()
		var mu sync.Mutex
		runs, ran := 0, map[time.Time]int{}
		o := &cronlock.Options{Report: func(result once.Result, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			if result.Verdict == once.Ran {
				ran[result.Slot.Start]++
			}
		}}
		for i := range 3 {
			c := cron.New()
			late := func(job cron.Job) cron.Job {
				return cron.FuncJob(func() { time.Sleep(time.Duration(i) * 7 * time.Millisecond); job.Run() })
			}
			job := cronlock.Job(storetest.Client(t, store, ""), "job", schedule, o, func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				runs++
				return nil
			})
			c.Schedule(schedule, late(job))
			c.Start()
			defer func() { <-c.Stop().Done() }()
		}
		time.Sleep(time.Minute + time.Second/2)
		mu.Lock()
		defer mu.Unlock()
		if runs != 60 || len(ran) != 60 {
			t.Errorf("%d runs at %d of 60 activations", runs, len(ran))
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
