//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/contend"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/bench/internal/stage"
)

// heldLocks is what it costs to hold many locks.
func heldLocks() scenario {
	const ttl = 5 * time.Second
	kinds := slices.DeleteFunc(slices.Concat(contend.Redis(), contend.RedisDefaults()), func(k contend.Kind) bool { return !k.Renews })
	return scenario{
		name:  "redis-held",
		group: "Redis: holding",
		title: "10,000 locks held by one process",
		about: fmt.Sprintf("Nothing happens but renewal, for one TTL of %v. Those that do not renew are not here. Holdfast renews "+
			"when a third of the TTL is over, rueidislock when half of it is.", ttl),
		metrics: []result.Metric{
			{Key: "commands", Title: "commands run/s", Unit: result.Rate, Lower: true},
			{Key: "bytes", Title: "bytes/s", Unit: result.Bytes, Lower: true},
			{Key: "server", Title: "server CPU", Unit: result.Percent, Lower: true, Chart: true},
			{Key: "client", Title: "client CPU", Unit: result.Percent, Lower: true, Chart: true},
			{Key: "goroutines", Title: "goroutines", Unit: result.Count, Lower: true},
			{Key: "heap", Title: "memory for a lock", Unit: result.Bytes, Lower: true},
		},
		kinds:   kinds,
		nodes:   1,
		ttl:     ttl,
		measure: (*scene).holding,
	}
}

func (s *scene) holding(k contend.Kind) (result.Sample, error) {
	const locks = 10_000
	var sample result.Sample
	err := s.with(k, func(ctx context.Context, c contend.Contender) error {
		empty, goroutines := heap(), runtime.NumGoroutine()
		held, err := acquireMany(ctx, c, locks)
		if err != nil {
			return err
		}
		size := heap()
		span := s.scenario.ttl
		self, server := stage.ReadSelf(), stage.ReadRedis(s.redis[0])
		time.Sleep(span)
		used, served := stage.ReadSelf().Sub(self), stage.ReadRedis(s.redis[0]).Sub(server)
		sample.Values = map[string]float64{
			"commands":   served.Commands / span.Seconds(),
			"bytes":      (served.In + served.Out) / span.Seconds(),
			"server":     served.CPU / span.Seconds() * 100,
			"client":     used.CPU / span.Seconds() * 100,
			"goroutines": float64(runtime.NumGoroutine() - goroutines),
			"heap":       (size - empty) / locks,
		}
		return errors.Join(eachOf(len(held), func(i int) error { return held[i].Release(ctx) })...)
	})
	return sample, err
}

func acquireMany(ctx context.Context, c contend.Contender, locks int) ([]contend.Held, error) {
	held := make([]contend.Held, locks)
	errs := eachOf(locks, func(i int) error {
		var err error
		held[i], err = c.Acquire(ctx, fmt.Sprint("job/", i))
		return err
	})
	return held, errors.Join(errs...)
}

// eachOf does something for each of n, 64 at a time.
func eachOf(n int, do func(i int) error) []error {
	const lanes = 64
	errs := make([]error, n)
	var group sync.WaitGroup
	for lane := range lanes {
		group.Go(func() {
			for i := lane; i < n; i += lanes {
				errs[i] = do(i)
			}
		})
	}
	group.Wait()
	return errs
}

// heap returns the size of what is in use, stacks of goroutines included, when
// what the contender before has left behind is gone.
func heap() float64 {
	var memory runtime.MemStats
	for range 3 { // A pool of package sync keeps things for two collections.
		runtime.GC()
		time.Sleep(50 * time.Millisecond)
	}
	runtime.ReadMemStats(&memory)
	return float64(memory.HeapAlloc + memory.StackInuse)
}
