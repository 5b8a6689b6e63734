//go:build unix

package main

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/lockers"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/internal/measure"
)

const quorumNodes = 5

func quorumScenarios() []scenario {
	return []scenario{quorumPairs(1), quorumPairs(64), quorumOperations(false), quorumOperations(true)}
}

func quorumPairs(goroutines int) scenario {
	return scenario{
		name:    fmt.Sprint("quorum-uncontended-", goroutines),
		group:   "Redis: a majority of five",
		title:   goroutinesText(goroutines),
		about:   "Acquire and release in a loop, five servers on the same machine. Sent, and server CPU, are those of one of them.",
		metrics: throughputMetrics, contenders: lockers.Quorum(), nodes: quorumNodes,
		measure: pairs(goroutines, measure.OwnNames("job")),
	}
}

// quorumOperations measures each operation; with hung, while a node does not respond.
func quorumOperations(hung bool) scenario {
	sc := scenario{
		name:  "quorum-latency",
		group: "Redis: a majority of five",
		title: "Each operation, all nodes well",
		about: "One goroutine acquires, extends and releases; the median of each.",
		metrics: []result.Metric{
			{Key: "acquire", Title: "acquire", Unit: result.Micros, Lower: true, Quantile: 0.5, Chart: true},
			{Key: "extend", Title: "extend", Unit: result.Micros, Lower: true, Quantile: 0.5, Chart: true},
			{Key: "release", Title: "release", Unit: result.Micros, Lower: true, Quantile: 0.5, Chart: true},
		},
		contenders: lockers.Quorum(), nodes: quorumNodes,
		measure: func(t *trial) (sample result.Sample, err error) {
			// The warm-up connects to all nodes.
			_, err = measure.Pairs(t.ctx, t.locker, 1, measure.SameName("job"), t.span/10, nil)
			if err != nil {
				return sample, err
			}
			if hung {
				node := t.redis[quorumNodes-1]
				node.Pause()
				defer node.Resume()
			}
			sample.Series, err = t.measureOperations()
			return sample, err
		},
	}
	if hung {
		sc.name, sc.title = "quorum-hung", "Each operation, one node of five hung"
		sc.about = "As above while the process of one server is stopped (SIGSTOP): its connections stay open, and nothing is answered."
	}
	return sc
}

// measureOperations runs the three operations in turn until the span is over.
func (t *trial) measureOperations() (map[string][]float64, error) {
	series := map[string][]float64{}
	timed := func(operation string, f func() error) error {
		began := time.Now()
		err := f()
		series[operation] = append(series[operation], microseconds(time.Since(began))...)
		return err
	}
	const most = 300
	end := time.Now().Add(t.span)
	for i := 0; i < most && (i == 0 || time.Now().Before(end)); i++ {
		var held measure.Held
		err := timed("acquire", func() (err error) {
			held, err = t.locker.Acquire(t.ctx, fmt.Sprint("job/", i))
			return err
		})
		if err != nil {
			return nil, err
		}
		if err := timed("extend", func() error { return held.(measure.Extender).Extend(t.ctx, t.ttl) }); err != nil {
			return nil, err
		}
		if err := timed("release", func() error { return held.Release(t.ctx) }); err != nil {
			return nil, err
		}
	}
	return series, nil
}
