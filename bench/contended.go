//go:build unix

package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/contend"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/bench/internal/stage"
)

// contendedMetrics are those of scenarios in which many want one name.
var contendedMetrics = []result.Metric{
	{Key: "rate", Title: "pairs/s", Unit: result.Rate, Chart: true},
	{Key: "fair", Title: "fairness", Unit: result.Fraction},
	{Key: "commands", Title: "commands run for a pair", Unit: result.Count, Lower: true},
	{Key: "server", Title: "server CPU for a pair", Unit: result.Micros, Lower: true},
}

// contendedTTL lets whoever waits for a notification that was lost try again
// well before he is given up.
const contendedTTL = 3 * time.Second

// contendedGoroutines is many goroutines of one process that want one name.
func contendedGoroutines() scenario {
	const goroutines = 16
	return scenario{
		name:  "redis-contended-goroutines",
		group: "Redis: contended",
		title: "16 goroutines of one process on one name",
		about: "Each acquires and releases in a loop, without work in between (TTL 3 s). Fairness is Jain's index over the " +
			"goroutines: 1 if all had the lock equally often, 0.06 if one had it always.",
		metrics: contendedMetrics,
		kinds:   waiting(),
		nodes:   1,
		ttl:     contendedTTL,
		measure: func(s *scene, k contend.Kind) (result.Sample, error) {
			var counts []float64
			var served stage.RedisUse
			err := s.with(k, func(ctx context.Context, c contend.Contender) error {
				if _, err := load(ctx, c, goroutines, oneName, s.span/4); err != nil {
					return err
				}
				before := stage.ReadRedis(s.redis[0])
				var err error
				counts, err = load(ctx, c, goroutines, oneName, s.span)
				served = stage.ReadRedis(s.redis[0]).Sub(before)
				return err
			})
			return s.contended(counts, served), err
		},
	}
}

// contendedProcesses is several processes that want one name.
func contendedProcesses() scenario {
	const processes, goroutines = 4, 4
	return scenario{
		name:    "redis-contended-processes",
		group:   "Redis: contended",
		title:   "4 processes of 4 goroutines each on one name",
		about:   "As above, with four processes. Fairness is over all 16 goroutines.",
		metrics: contendedMetrics,
		kinds:   waiting(),
		nodes:   1,
		ttl:     contendedTTL,
		measure: func(s *scene, k contend.Kind) (result.Sample, error) {
			var counts []float64
			var served stage.RedisUse
			err := s.peers(k, processes, func(peers []*peer) error {
				if _, err := s.all(peers, goroutines, 4); err != nil {
					return err
				}
				before := stage.ReadRedis(s.redis[0])
				var err error
				counts, err = s.all(peers, goroutines, 1)
				served = stage.ReadRedis(s.redis[0]).Sub(before)
				return err
			})
			return s.contended(counts, served), err
		},
	}
}

// waiting lists those who can wait for a lock.
func waiting() []contend.Kind {
	return slices.Concat(contend.Redis(), contend.RedisDefaults(), contend.RedisPolling())
}

// all lets every peer do its part at the same time, for a part of the scene's span.
func (s *scene) all(peers []*peer, goroutines, part int) ([]float64, error) {
	counts := make([][]float64, len(peers))
	errs := make([]error, len(peers))
	var group sync.WaitGroup
	for i, p := range peers {
		group.Go(func() { counts[i], errs[i] = p.tell("load", "job", goroutines, s.span/time.Duration(part)) })
	}
	group.Wait()
	return slices.Concat(counts...), errors.Join(errs...)
}

func (s *scene) contended(counts []float64, served stage.RedisUse) result.Sample {
	pairs := sum(counts)
	return result.Sample{Values: map[string]float64{
		"rate":     pairs / s.span.Seconds(),
		"fair":     result.Jain(counts),
		"commands": served.Commands / pairs,
		"server":   served.CPU / pairs * 1e6,
	}}
}
