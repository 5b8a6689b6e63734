//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"strconv"

	"github.com/holdfast-go/holdfast/bench/internal/lockers"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/internal/measure"
)

func limitScenarios() []scenario {
	return []scenario{semaphore(), readers()}
}

// semaphore measures many goroutines that want the slots of one semaphore.
func semaphore() scenario {
	const slots, goroutines = 10, 64
	return scenario{
		name:    "redis-semaphore",
		group:   "Redis: shared and limited",
		title:   "64 goroutines and a semaphore of 10",
		about:   "Each acquires and releases in a loop, without work in between. Fairness is Jain's index over the goroutines.",
		metrics: contendedMetrics, contenders: lockers.Limited(slots), nodes: 1, ttl: contendedTTL,
		measure: func(t *trial) (sample result.Sample, err error) {
			if t.contender.Name != lockers.Semaphore {
				return pairs(goroutines, measure.SameName("job"))(t)
			}
			host, port, err := net.SplitHostPort(t.redis[0].Addr)
			if err != nil {
				return sample, err
			}
			before := readRedis(t.redis[0])
			out, err := exec.CommandContext(t.ctx, "node", "../redisstore/interop/semaphore.js", host, port,
				strconv.Itoa(slots), strconv.Itoa(goroutines), strconv.FormatInt(t.span.Milliseconds(), 10)).Output()
			served := readRedis(t.redis[0]).since(before)
			var counts []float64
			if err == nil {
				err = json.Unmarshal(out, &counts)
			}
			if all := measure.Sum(counts); err == nil && all > 0 {
				// The server counts from the warm-up on, which takes a quarter of the time.
				sample.Values = map[string]float64{
					"rate": all / t.span.Seconds(), "fair": measure.Jain(counts),
					"commands": served.commands / all / 1.25, "server": served.cpu / all / 1.25 * 1e6,
				}
			}
			return sample, err
		},
	}
}

// readers measures readers of one name that a thousand others hold.
func readers() scenario {
	const held, goroutines = 1000, 16
	return scenario{
		name:  "redis-readers",
		group: "Redis: shared and limited",
		title: "Readers of a name with 1,000 readers",
		about: "16 goroutines acquire and release in a loop, while the process holds 1,000 locks of the same kind: shared ones of one " +
			"name, or exclusive ones of a thousand names.",
		metrics: throughputMetrics, contenders: lockers.Readers(), nodes: 1,
		measure: func(t *trial) (result.Sample, error) {
			job, other := measure.SameName("job"), measure.SameName("job")
			if t.contender.Name != lockers.Readers()[0].Name {
				job, other = measure.OwnNames("job"), measure.OwnNames("held")
			}
			for i := range held {
				if _, err := t.locker.Acquire(t.ctx, other(i)); err != nil {
					return result.Sample{}, fmt.Errorf("hold %d: %w", i, err)
				}
			}
			return pairs(goroutines, job)(t)
		},
	}
}
