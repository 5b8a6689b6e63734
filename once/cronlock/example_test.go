package cronlock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/once/cronlock"
)

func Example() {
	locks := holdfast.New(memstore.New(), nil)
	defer locks.Close()

	schedule, err := cron.ParseStandard("0 3 * * *")
	if err != nil {
		log.Fatal(err)
	}
	job := cronlock.Job(locks, "cron:nightly", schedule, nil, func(ctx context.Context) error {
		fmt.Println("working")
		return ctx.Err() // ends when the lock is lost
	})
	c := cron.New()
	c.Schedule(schedule, job)
	c.Start()
	defer c.Stop()

	job.Run() // as cron does, at three
	// Output: working
}
