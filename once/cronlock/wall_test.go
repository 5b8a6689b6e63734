package cronlock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata"

	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/once"
	"github.com/holdfast-go/holdfast/once/cronlock"
)

// zones change at different hours, two of them at midnight, and one by half an hour.
var zones = []string{
	"Europe/Berlin", "Europe/London", "America/New_York", "America/Los_Angeles", "America/Santiago", "Africa/Cairo",
	"Australia/Lord_Howe",
}

// times are minutes of the day.
var times = []int{0, 30, 59, 60, 90, 119, 120, 150, 180, 210, 240, 420, 720, 780, 1170, 1410}

// TestSummerTime: a daily job that two hosts with cron start runs once on each day around both
// changes, in slots that follow each other without a gap. Cron starts it at each moment whose clock
// shows the time, and at the change that skips the time. One host is late.
func TestSummerTime(t *testing.T) {
	for _, name := range zones {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, minute := range times {
			synctest.Test(t, func(t *testing.T) {
				schedule, err := cron.ParseStandard(fmt.Sprintf("%d %d * * *", minute%60, minute/60))
				if err != nil {
					t.Fatal(err)
				}
				locks := holdfast.New(memstore.New(), nil)
				defer locks.Close()
				runs := map[int]int{} // by day of the year
				var last once.Slot
				ask := func() {
					now := time.Now().In(zone)
					slot, err := cronlock.Slot(schedule, now)
					if err != nil {
						t.Fatal(err)
					}
					if slot != last && !last.End.IsZero() && !slot.Start.Equal(last.End) {
						t.Errorf("%s, %02d:%02d: %v after %v", name, minute/60, minute%60, slot, last)
					}
					last = slot
					result, err := once.In(t.Context(), locks, "job", slot, nil, func(context.Context) error { return nil })
					if err != nil {
						t.Fatal(err)
					}
					if result.Verdict == once.Ran {
						runs[now.YearDay()]++
					}
				}
				_, change := time.Date(2000, 1, 5, 0, 0, 0, 0, zone).ZoneBounds()
				for range 2 { // to summer time and back, in either order
					last = once.Slot{}
					begin := change.AddDate(0, 0, -2)
					begin = time.Date(begin.Year(), begin.Month(), begin.Day(), 0, 0, 0, 0, zone)
					end := time.Date(begin.Year(), begin.Month(), begin.Day()+5, 0, 0, 0, 0, zone)
					for at := begin; at.Before(end); at = at.Add(time.Minute) {
						if minuteOfDay(at) == minute || isSkipped(at, minute) {
							time.Sleep(time.Until(at))
							ask()
							time.Sleep(20 * time.Second)
							ask()
						}
					}
					for day := begin; day.Before(end); day = day.AddDate(0, 0, 1) {
						if n := runs[day.YearDay()]; n != 1 {
							t.Errorf("%s, %02d:%02d: %d runs on %v", name, minute/60, minute%60, n, day)
						}
					}
					_, change = change.ZoneBounds()
				}
			})
		}
	}
}

func minuteOfDay(t time.Time) int { return t.Hour()*60 + t.Minute() }

// isSkipped reports whether the clock on the wall has just skipped a minute of the day.
func isSkipped(at time.Time, minute int) bool {
	before := (minuteOfDay(at.Add(-time.Minute)) + 1) % (24 * 60)
	return before <= minute && minute < minuteOfDay(at)
}
