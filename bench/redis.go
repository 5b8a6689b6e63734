//go:build unix

package main

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-go/holdfast/bench/internal/lockers"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/internal/hostclock"
	"github.com/holdfast-go/holdfast/internal/measure"
)

func redisScenarios() []scenario {
	return []scenario{
		uncontended(1, anyCore), uncontended(1, oneCore), uncontended(1, twoCores),
		uncontended(64, anyCore), uncontended(512, anyCore),
		contendedGoroutines(), contendedProcesses(), tokens(),
		handOver(), idleWaiters(), crash(0), crash(300_000), heldLocks(),
	}
}

// throughputMetrics are the rate of pairs of acquire and release, and the cost of a pair.
var throughputMetrics = []result.Metric{
	{Key: "rate", Title: "pairs/s", Unit: result.Rate, Chart: true},
	{Key: "allocs", Title: "allocations", Unit: result.Count, Lower: true},
	{Key: "bytes", Title: "memory", Unit: result.Bytes, Lower: true},
	{Key: "client", Title: "client CPU", Unit: result.Micros, Lower: true},
	{Key: "server", Title: "server CPU", Unit: result.Micros, Lower: true},
	{Key: "wire", Title: "sent", Unit: result.Bytes, Lower: true},
}

// uncontended measures acquire and release without contention.
func uncontended(goroutines int, where placement) scenario {
	sc := scenario{
		name:       fmt.Sprint("redis-uncontended-", goroutines) + where.suffix(),
		group:      "Redis: uncontended",
		title:      goroutinesText(goroutines),
		about:      "Acquire and release in a loop, one server, one process.",
		metrics:    throughputMetrics,
		contenders: slices.Concat(lockers.Redis(), lockers.RedisDefaults(), lockers.RedisRaw()),
		nodes:      1,
		placement:  where,
		measure:    pairs(goroutines, measure.OwnNames("job")),
	}
	switch where {
	case oneCore:
		sc.title += "; client and server on one core"
		sc.about += " All threads of both are pinned to one core: the time of a pair is the sum of their work."
	case twoCores:
		sc.title += "; client and server on two cores"
		sc.about += " Each is pinned to a core of its own: the time of a pair is mostly that of waking the other."
	}
	return sc
}

// pairs measures pairs per second and the cost of a pair, after a warm-up. The figures of several
// Redis servers are those of the first.
func pairs(goroutines int, name func(int) string) func(t *trial) (result.Sample, error) {
	return func(t *trial) (sample result.Sample, err error) {
		if _, err := measure.Pairs(t.ctx, t.locker, goroutines, name, t.span/4, nil); err != nil {
			return sample, err
		}
		runtime.GC()
		walBefore, err := t.walBytes()
		if err != nil {
			return sample, err
		}
		var redisBefore redisUsage
		if len(t.redis) > 0 {
			redisBefore = readRedis(t.redis[0])
		}
		before := measure.ReadUsage()
		counts, err := measure.Pairs(t.ctx, t.locker, goroutines, name, t.span, nil)
		used := measure.ReadUsage().Sub(before)
		pairs := measure.Sum(counts)
		if err != nil || pairs == 0 { // Without a pair, the figures of this round are unknown.
			return sample, err
		}
		sample.Values = map[string]float64{
			"rate":   pairs / t.span.Seconds(),
			"allocs": used.Allocs / pairs,
			"bytes":  used.Bytes / pairs,
			"client": used.CPU / pairs * 1e6,
			"fair":   measure.Jain(counts),
		}
		if len(t.redis) > 0 {
			served := readRedis(t.redis[0]).since(redisBefore)
			sample.Values["commands"] = served.commands / pairs
			sample.Values["server"] = served.cpu / pairs * 1e6
			sample.Values["wire"] = served.in / pairs
		}
		wal, err := t.walBytes()
		sample.Values["wal"] = (wal - walBefore) / pairs
		return sample, err
	}
}

// contendedMetrics are the metrics of scenarios in which many goroutines want one name.
var contendedMetrics = []result.Metric{
	{Key: "rate", Title: "pairs/s", Unit: result.Rate, Chart: true},
	{Key: "fair", Title: "fairness", Unit: result.Fraction},
	{Key: "commands", Title: "commands run for a pair", Unit: result.Count, Lower: true},
	{Key: "server", Title: "server CPU for a pair", Unit: result.Micros, Lower: true},
}

// contendedTTL is short enough that a waiter that lost its notification tries again well
// before measureTimeout.
const contendedTTL = 3 * time.Second

// waitingContenders lists the contenders that can wait for a lock.
func waitingContenders() []lockers.Contender {
	return slices.Concat(lockers.Redis(), lockers.RedisDefaults(), lockers.RedisPolling())
}

// contendedGoroutines measures many goroutines of one process that want one name.
func contendedGoroutines() scenario {
	return scenario{
		name:  "redis-contended-goroutines",
		group: "Redis: contended",
		title: "16 goroutines of one process on one name",
		about: "Each acquires and releases in a loop, without work in between (TTL 3 s). Fairness is Jain's index over the " +
			"goroutines: 1 if all had the lock equally often, 0.06 if one had it always.",
		metrics: contendedMetrics, contenders: waitingContenders(), nodes: 1, ttl: contendedTTL,
		measure: pairs(16, measure.SameName("job")),
	}
}

// contendedProcesses measures several processes that want one name.
func contendedProcesses() scenario {
	const processes, goroutines = 4, 4
	return scenario{
		name:  "redis-contended-processes",
		group: "Redis: contended",
		title: "4 processes of 4 goroutines each on one name",
		about: "As above, with four processes. Fairness is over all 16 goroutines. The longest wait is that of any acquisition in any " +
			"round. Holdfast passes a lock on within a process for up to 10 ms (Config.LocalTurn), and so would serve each of them after " +
			"four such turns if nothing else took time.",
		metrics: slices.Concat(contendedMetrics, []result.Metric{
			{Key: "wait", Title: "longest wait", Unit: result.Micros, Lower: true, Quantile: 1},
		}),
		contenders: waitingContenders(), nodes: 1, ttl: contendedTTL,
		workers: processes,
		measure: func(t *trial) (sample result.Sample, err error) {
			if _, err := measure.AllPairs(t.workers, "job", goroutines, t.span/4); err != nil {
				return sample, err
			}
			before := readRedis(t.redis[0])
			waits, err := measure.AllPairs(t.workers, "job", goroutines, t.span)
			served := readRedis(t.redis[0]).since(before)
			counts, longest := make([]float64, len(waits)), time.Duration(0)
			for i, own := range waits {
				counts[i], longest = float64(len(own)), max(longest, slices.Max(append(own, 0)))
			}
			if pairs := measure.Sum(counts); pairs > 0 {
				sample.Values = map[string]float64{
					"rate":     pairs / t.span.Seconds(),
					"fair":     measure.Jain(counts),
					"commands": served.commands / pairs,
					"server":   served.cpu / pairs * 1e6,
				}
				sample.Series = map[string][]float64{"wait": microseconds(longest)}
			}
			return sample, err
		},
	}
}

// tokens measures holds of one name by three clients, and whether each has a greater token than the
// one before it.
func tokens() scenario {
	const clients, goroutines, holds = 3, 16, 1_000_000
	return scenario{
		name:  "redis-tokens",
		group: "Redis: contended",
		title: "A million holds of one name by three clients",
		about: fmt.Sprintf("%d goroutines acquire and release for each client, and compare the tokens. One that is not greater than the one "+
			"before it ends the measurement.", goroutines),
		metrics: []result.Metric{
			{Key: "rate", Title: "pairs/s", Unit: result.Rate, Chart: true},
			{Key: "holds", Title: "holds with a greater token", Unit: result.Count},
		},
		contenders: lockers.Redis()[:1], nodes: 1, timeout: 5 * time.Minute,
		measure: func(t *trial) (sample result.Sample, err error) {
			var count, last atomic.Int64
			group, ctx := errgroup.WithContext(t.ctx)
			hold := func(locker measure.Locker) error {
				held, err := locker.Acquire(ctx, "job")
				if err != nil {
					return err
				}
				count.Add(1)
				token := held.(interface{ Token() int64 }).Token()
				if before := last.Swap(token); token <= before {
					err = fmt.Errorf("the token %d follows %d", token, before)
				}
				return errors.Join(err, held.Release(t.ctx))
			}
			began := time.Now()
			for range clients {
				locker, err := t.contender.Open(t.options())
				if err != nil {
					return sample, err
				}
				defer locker.Close()
				for range goroutines {
					group.Go(func() (err error) {
						for err == nil && count.Load() < holds {
							err = hold(locker)
						}
						return err
					})
				}
			}
			err = group.Wait()
			n := float64(count.Load())
			sample.Values = map[string]float64{"rate": n / time.Since(began).Seconds(), "holds": n}
			return sample, err
		},
	}
}

// handOver measures how long a lock is idle between two processes that want it.
func handOver() scenario {
	const perRound = 12
	return scenario{
		name:  "redis-handover",
		group: "Redis: waiting",
		title: "Hand-over between two processes",
		about: "One process holds the lock, another waits for it. The time from the call that releases to the moment at " +
			"which the waiter has the lock.",
		metrics: []result.Metric{
			{Key: "handover", Title: "median", Unit: result.Micros, Lower: true, Quantile: 0.5, Chart: true},
			{Key: "handover", Title: "99th percentile", Unit: result.Micros, Lower: true, Quantile: 0.99, Chart: true},
		},
		contenders: waitingContenders(), nodes: 1, workers: 2,
		measure: func(t *trial) (result.Sample, error) {
			idle, err := measure.HandOvers(t.workers[0], t.workers[1], "job", perRound, measureTimeout)
			return result.Sample{Series: map[string][]float64{"handover": microseconds(idle...)}}, err
		},
	}
}

// idleWaiters measures the cost of waiters on the server.
func idleWaiters() scenario {
	const processes, each = 5, 10
	return scenario{
		name:  "redis-waiters",
		group: "Redis: waiting",
		title: "50 waiters while nothing happens",
		about: "One process holds the lock; five others wait for it, in ten goroutines each. Commands, bytes and CPU of " +
			"the server in that time, those of the holder's renewals included where there are any (TTL 6 s). Then the lock is " +
			"released, and the time until all 50 have had it in turn is measured.",
		metrics: []result.Metric{
			{Key: "commands", Title: "requests/s for a waiter", Unit: result.Rate, Lower: true, Chart: true},
			{Key: "bytes", Title: "bytes/s received", Unit: result.Bytes, Lower: true},
			{Key: "server", Title: "server CPU", Unit: result.Percent, Lower: true},
			{Key: "drain", Title: "all 50 served in", Unit: result.Micros, Lower: true, Chart: true},
		},
		contenders: waitingContenders(), nodes: 1, ttl: 6 * time.Second,
		workers: 1 + processes,
		measure: func(t *trial) (sample result.Sample, err error) {
			holder, waiting := t.workers[0], t.workers[1:]
			if _, err := holder.Acquire("job"); err != nil {
				return sample, err
			}
			for _, w := range waiting {
				if err := w.StartWaiters("job", each); err != nil {
					return sample, err
				}
			}
			time.Sleep(500 * time.Millisecond) // The waiters settle.
			// Long enough to include renewals, and short enough that a lock without renewal
			// does not expire.
			span := t.ttl * 2 / 3
			before := readRedis(t.redis[0])
			requests, err := countRequests(t.redis[0].Addr, span)
			if err != nil {
				return sample, err
			}
			used := readRedis(t.redis[0]).since(before)
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
			sample.Values = map[string]float64{
				"commands": float64(requests) / span.Seconds() / (processes * each),
				"bytes":    used.in / span.Seconds(),
				"server":   used.cpu / span.Seconds() * 100,
				"drain":    microseconds(last - released)[0],
			}
			return sample, nil
		},
	}
}

// takeOverBound is how long a run waits for a take-over.
const takeOverBound = 5 * time.Second

// crash measures how long a lock is idle after its holder has crashed and its TTL is over, on a
// server that has a number of other keys as well.
func crash(keys int) scenario {
	const ttl = time.Second
	sc := scenario{
		name:  "redis-crash",
		group: "Redis: waiting",
		title: "The holder crashes",
		about: fmt.Sprintf("The holder's process is killed while another waits. The time from the moment at which the key expires "+
			"(TTL %v) to that at which the waiter has the lock.", ttl),
		metrics: []result.Metric{
			{Key: "idle", Title: "median", Unit: result.Micros, Lower: true, Quantile: 0.5, Chart: true},
			{Key: "idle", Title: "longest", Unit: result.Micros, Lower: true, Quantile: 1},
		},
		contenders: waitingContenders(), nodes: 1, ttl: ttl, workers: 2,
		measure: func(t *trial) (result.Sample, error) {
			const fill = `for i = 1, ARGV[1] do redis.call("SET", "other/" .. i, i, "EX", 3600) end`
			t.redis[0].Do("EVAL", fill, "0", strconv.Itoa(keys))
			idle, err := measure.TakeOver(t.workers[0], t.workers[1], "job", takeOverBound, t.lastExpiry)
			return result.Sample{Series: map[string][]float64{"idle": microseconds(idle)}}, err
		},
	}
	if keys > 0 {
		sc.name += "-busy"
		sc.title += ", on a server with other keys"
		sc.about = fmt.Sprintf("As above, with %d other keys that have a TTL: Redis then takes its time to notice that a key has "+
			"expired that no client reads. A run waits %v at most: that figure means that the waiter was still waiting.", keys, takeOverBound)
	}
	return sc
}

// lastExpiry returns the time at which the last key of the contender's lock expires.
func (t *trial) lastExpiry() (last time.Duration, err error) {
	for _, key := range t.contender.Keys("job") {
		now := hostclock.Now()
		left, err := strconv.Atoi(t.redis[0].Do("PTTL", key))
		if err != nil {
			return 0, fmt.Errorf("the TTL of %s: %w", key, err)
		}
		last = max(last, now+time.Duration(left)*time.Millisecond)
	}
	return last, nil
}

// heldLocks measures the cost of holding many locks.
func heldLocks() scenario {
	const locks, ttl = 10_000, 5 * time.Second
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
		contenders: slices.DeleteFunc(slices.Concat(lockers.Redis(), lockers.RedisDefaults()),
			func(c lockers.Contender) bool { return !c.Renews }),
		nodes: 1, ttl: ttl,
		measure: func(t *trial) (sample result.Sample, err error) {
			empty, goroutines := measure.HeapInUse(), runtime.NumGoroutine()
			err = measure.HoldMany(t.ctx, t.locker, locks, measure.OwnNames("job"), func() error {
				heap := measure.HeapInUse()
				before, redisBefore := measure.ReadUsage(), readRedis(t.redis[0])
				time.Sleep(ttl)
				used := measure.ReadUsage().Sub(before)
				served := readRedis(t.redis[0]).since(redisBefore)
				sample.Values = map[string]float64{
					"commands":   served.commands / ttl.Seconds(),
					"bytes":      (served.in + served.out) / ttl.Seconds(),
					"server":     served.cpu / ttl.Seconds() * 100,
					"client":     used.CPU / ttl.Seconds() * 100,
					"goroutines": float64(runtime.NumGoroutine() - goroutines),
					"heap":       (heap - empty) / locks,
				}
				return nil
			})
			return sample, err
		},
	}
}
