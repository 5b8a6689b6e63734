package gocronlock_test

import (
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/once/gocronlock"
)

func ExampleNewLocker() {
	locks := holdfast.New(memstore.New(), nil)
	defer locks.Close()

	scheduler, err := gocron.NewScheduler()
	if err != nil {
		log.Fatal(err)
	}
	defer scheduler.Shutdown()
	_, err = scheduler.NewJob(
		gocron.DailyJob(1, gocron.NewAtTimes(gocron.NewAtTime(3, 0, 0))),
		gocron.NewTask(func() { fmt.Println("cleaning up") }),
		gocron.WithName("cron:cleanup"), // the same on all replicas
		gocron.WithDistributedJobLocker(gocronlock.NewLocker(locks, 24*time.Hour, nil)),
	)
	scheduler.Start()
	fmt.Println(err)
	// Output: <nil>
}
