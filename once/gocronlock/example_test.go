package gocronlock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
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

func ExampleNewElector() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	locks := holdfast.New(memstore.New(), nil)
	defer locks.Close()

	e := election.New(locks, "scheduler", nil)
	go e.Run(ctx, func(ctx context.Context, _ election.Term) error {
		<-ctx.Done() // the scheduler does the work
		return ctx.Err()
	})
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(gocronlock.NewElector(e)))
	if err != nil {
		log.Fatal(err)
	}
	defer scheduler.Shutdown()
	scheduler.Start()
	fmt.Println(len(scheduler.Jobs()))
	// Output: 0
}
