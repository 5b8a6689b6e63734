//go:build unix

package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/lockers"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/internal/measure"
)

// growthScenarios measure what grows with the locks that are held, and with the clients that wait.
func growthScenarios() []scenario {
	var all []scenario
	for _, names := range []int{1, 1_000, 1_000_000} {
		all = append(all, growthHeld(names))
	}
	for _, clients := range []int{1, 10, 100, 700} {
		all = append(all, growthWaiting(clients))
	}
	return all
}

// growthHeld measures a pair while other clients hold a number of names.
func growthHeld(names int) scenario {
	return scenario{
		name:  fmt.Sprint("redis-growth-held-", names),
		group: "Redis: growth",
		title: fmt.Sprintf("A pair while %d other names are held", names),
		about: "Acquire and release in a loop by one goroutine, on a server with that many locks of other clients.",
		metrics: []result.Metric{
			{Key: "rate", Title: "pairs/s", Unit: result.Rate, Chart: true},
			{Key: "commands", Title: "commands run for a pair", Unit: result.Count, Lower: true},
			{Key: "server", Title: "server CPU for a pair", Unit: result.Micros, Lower: true},
			{Key: "wire", Title: "sent for a pair", Unit: result.Bytes, Lower: true},
			{Key: "memory", Title: "server memory for a held name", Unit: result.Bytes, Lower: true},
		},
		contenders: lockers.Redis(), nodes: 1,
		measure: func(t *trial) (result.Sample, error) {
			// The value of each lock is as long as one of Holdfast, whichever library is measured.
			const fill = `for i = 1, ARGV[1] do redis.call("SET", ARGV[2] .. i, string.rep("v", 90), "EX", 3600) end`
			before := t.redisMemory()
			t.redis[0].Do("EVAL", fill, "0", strconv.Itoa(names), t.contender.Keys("other")[0])
			memory := t.redisMemory() - before
			sample, err := pairs(1, measure.OwnNames("job"))(t)
			if err == nil && sample.Values != nil {
				sample.Values["memory"] = memory / float64(names)
			}
			return sample, err
		},
	}
}

// growthWaiting measures hand-overs of one name while a number of processes wait for it.
func growthWaiting(clients int) scenario {
	return scenario{
		name:  fmt.Sprint("redis-growth-waiting-", clients),
		group: "Redis: growth",
		title: fmt.Sprintf("%d processes wait for one name", clients),
		about: "Each process is a client of its own with one waiter. What a waiter costs while nothing happens; then the " +
			"lock is released, and each of them has it once, without work in between. Polling libraries are not here: " +
			"they take up to an interval for each.",
		metrics: []result.Metric{
			{Key: "handover", Title: "one hand-over", Unit: result.Micros, Lower: true, Chart: true},
			{Key: "requests", Title: "requests for a hand-over", Unit: result.Count, Lower: true},
			{Key: "commands", Title: "commands run for a hand-over", Unit: result.Count, Lower: true},
			{Key: "wire", Title: "sent and received for a hand-over", Unit: result.Bytes, Lower: true},
			{Key: "idle", Title: "requests/s for a waiter", Unit: result.Rate, Lower: true},
		},
		contenders: lockers.Redis()[:2], nodes: 1, ttl: 30 * time.Second, timeout: 3 * time.Minute,
		workers: 1 + clients,
		measure: func(t *trial) (sample result.Sample, err error) {
			holder, waiting := t.workers[0], t.workers[1:]
			if _, err := holder.Acquire("job"); err != nil {
				return sample, err
			}
			for _, w := range waiting {
				if err := w.StartWaiters("job", 1); err != nil {
					return sample, err
				}
			}
			time.Sleep(time.Second) // The waiters settle.
			const span = 5 * time.Second
			idle, err := countRequests(t.redis[0].Addr, span)
			if err != nil {
				return sample, err
			}
			served := readRedis(t.redis[0])
			ctx, stop := context.WithCancel(t.ctx)
			defer stop()
			var requests int
			counted := make(chan error, 1)
			go func() {
				var err error
				requests, err = countRequestsUntil(ctx, t.redis[0].Addr)
				counted <- err
			}()
			released, err := holder.Release("job")
			if err != nil {
				return sample, err
			}
			var last time.Duration
			for _, w := range waiting {
				at, err := w.AwaitWaiters()
				if err != nil {
					return sample, err
				}
				last = max(last, at)
			}
			stop()
			if err := <-counted; err != nil {
				return sample, err
			}
			used := readRedis(t.redis[0]).since(served)
			n := float64(clients)
			sample.Values = map[string]float64{
				"handover": microseconds(last - released)[0] / n,
				"requests": float64(requests) / n,
				"commands": used.commands / n,
				"wire":     (used.in + used.out) / n,
				"idle":     float64(idle) / span.Seconds() / n,
			}
			return sample, nil
		},
	}
}

// redisMemory returns how many bytes the data of the first Redis server takes up.
func (r *scenarioRun) redisMemory() float64 {
	n, err := strconv.ParseFloat(infoField(r.redis[0].Do("INFO", "memory"), "used_memory_dataset"), 64)
	if err != nil {
		panic(err) // Every Redis reports it.
	}
	return n
}
