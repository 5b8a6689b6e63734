//go:build unix

package main

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/contend"
	"github.com/holdfast-go/holdfast/bench/internal/result"
)

// handover is how long a lock lies idle between two processes that want it.
func handover() scenario {
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
		kinds:   slices.Concat(contend.Redis(), contend.RedisDefaults(), contend.RedisPolling()),
		nodes:   1,
		measure: (*scene).handOver,
	}
}

// handOvers is how many there are in a round.
const handOvers = 12

func (s *scene) handOver(k contend.Kind) (result.Sample, error) {
	var took []float64
	err := s.peers(k, 2, func(peers []*peer) error {
		holder, waiter := peers[0], peers[1]
		if _, err := holder.acquire("job"); err != nil {
			return err
		}
		const warmUps = 2
		for i := range warmUps + handOvers {
			d, err := pass(holder, waiter)
			if err != nil {
				return err
			}
			if i >= warmUps {
				took = append(took, float64(d)/float64(time.Microsecond))
			}
			holder, waiter = waiter, holder
		}
		_, err := holder.release("job")
		return err
	})
	return result.Sample{Series: map[string][]float64{"handover": took}}, err
}

// pass hands the lock from a holder to a waiter that has waited for a while,
// long enough for it to have settled, and not always equally long: then those
// who look from time to time are met at any point between.
func pass(holder, waiter *peer) (time.Duration, error) {
	type moment struct {
		at  time.Duration
		err error
	}
	got := make(chan moment, 1)
	go func() {
		at, err := waiter.acquire("job")
		got <- moment{at, err}
	}()
	time.Sleep(20*time.Millisecond + rand.N(100*time.Millisecond))
	released, err := holder.release("job")
	if err != nil {
		return 0, err
	}
	taken := <-got
	return taken.at - released, taken.err
}
