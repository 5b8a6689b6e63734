package gocronlock_test

import (
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata"

	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/once"
	"github.com/holdfast-go/holdfast/once/cronlock"
	"github.com/holdfast-go/holdfast/once/gocronlock"
)

// TestSummerTime: two replicas run a daily job once on each day, also where the change of clocks
// moves it to another day of UTC, or across noon of UTC.
func TestSummerTime(t *testing.T) {
	for _, test := range []struct{ zone, spec string }{
		{"Europe/London", "30 0 * * *"}, {"Europe/London", "0 12 * * *"}, {"Europe/Berlin", "0 3 * * *"},
		{"America/New_York", "0 7 * * *"}, {"America/Los_Angeles", "0 4 * * *"},
	} {
		synctest.Test(t, func(t *testing.T) {
			schedule, err := cron.ParseStandard("TZ=" + test.zone + " " + test.spec)
			if err != nil {
				t.Fatal(err)
			}
			locks := holdfast.New(memstore.New(), nil)
			defer locks.Close()
			slot := func(now time.Time) (once.Slot, error) { return cronlock.Slot(schedule, now) }
			locker := gocronlock.NewSlotLocker(locks, slot, nil)
			for range 366 {
				time.Sleep(time.Until(schedule.Next(time.Now())) + 3*time.Millisecond)
				runs := 0
				for range 2 {
					if lock, err := locker.Lock(t.Context(), "job"); err == nil {
						runs++
						if err := lock.Unlock(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
				}
				if runs != 1 {
					t.Errorf("%s, %s: %d runs at %v", test.zone, test.spec, runs, time.Now())
				}
			}
		})
	}
}
