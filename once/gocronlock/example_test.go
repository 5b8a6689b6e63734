package gocronlock_test

import (
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/once"
	"github.com/holdfast-go/holdfast/once/cronlock"
	"github.com/holdfast-go/holdfast/once/gocronlock"
)

// A job at three o'clock runs once on each day, also when clocks are changed.
func ExampleNewSlotLocker() {
	locks := holdfast.New(memstore.New(), nil)
	defer locks.Close()

	const daily = "0 3 * * *"
	schedule, err := cron.ParseStandard(daily)
	if err != nil {
		log.Fatal(err)
	}
	slot := func(now time.Time) (once.Slot, error) { return cronlock.Slot(schedule, now) }
	scheduler, err := gocron.NewScheduler()
	if err != nil {
		log.Fatal(err)
	}
	defer scheduler.Shutdown()
	_, err = scheduler.NewJob(
		gocron.CronJob(daily, false),
		gocron.NewTask(func() { fmt.Println("cleaning up") }),
		gocron.WithName("cron:cleanup"), // the same on all replicas
		gocron.WithDistributedJobLocker(gocronlock.NewSlotLocker(locks, slot, nil)),
	)
	scheduler.Start()
	fmt.Println(err)
	// Output: <nil>
}
