//go:build unix

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/contend"
	"github.com/holdfast-go/holdfast/bench/internal/result"
)

const (
	quorumNodes = 5
	quorumGroup = "Redis: a majority of five"
)

// quorumThroughput is the speed of a quorum.
func quorumThroughput(goroutines int) scenario {
	return scenario{
		name:    fmt.Sprint("quorum-uncontended-", goroutines),
		group:   quorumGroup,
		title:   counted(goroutines) + ", each on a name of its own",
		about:   "Acquire and release in a loop, five servers on the same machine. Sent, and server CPU, are those of one of them.",
		metrics: throughputMetrics,
		kinds:   contend.Quorum(),
		nodes:   quorumNodes,
		measure: func(s *scene, k contend.Kind) (result.Sample, error) { return s.throughput(k, goroutines, ownNames) },
	}
}

// hungNode is what a node that does not answer costs.
func hungNode(hung bool) scenario {
	sc := scenario{
		name:  "quorum-latency",
		group: quorumGroup,
		title: "Each operation, all nodes well",
		about: "One goroutine acquires, extends and releases; the median of each.",
		metrics: []result.Metric{
			{Key: "acquire", Title: "acquire", Unit: result.Micros, Lower: true, Quantile: 0.5, Chart: true},
			{Key: "extend", Title: "extend", Unit: result.Micros, Lower: true, Quantile: 0.5, Chart: true},
			{Key: "release", Title: "release", Unit: result.Micros, Lower: true, Quantile: 0.5, Chart: true},
		},
		kinds:   contend.Quorum(),
		nodes:   quorumNodes,
		measure: (*scene).operations,
	}
	if hung {
		sc.name, sc.title = "quorum-hung", "Each operation, one node of five hung"
		sc.about = "As above while the process of one server is stopped (SIGSTOP): its connections stay open, and nothing is answered."
		sc.measure = (*scene).operationsHung
	}
	return sc
}

func (s *scene) operationsHung(k contend.Kind) (result.Sample, error) {
	node := s.redis[quorumNodes-1]
	var sample result.Sample
	err := s.with(k, func(ctx context.Context, c contend.Contender) error {
		if _, err := load(ctx, c, 1, oneName, s.span/10); err != nil { // It connects to all.
			return err
		}
		node.Pause()
		defer node.Resume()
		var err error
		sample, err = s.operate(ctx, c)
		return err
	})
	return sample, err
}

func (s *scene) operations(k contend.Kind) (result.Sample, error) {
	var sample result.Sample
	err := s.with(k, func(ctx context.Context, c contend.Contender) error {
		if _, err := load(ctx, c, 1, oneName, s.span/10); err != nil {
			return err
		}
		var err error
		sample, err = s.operate(ctx, c)
		return err
	})
	return sample, err
}

// operate carries out the three operations in turn until the span is over.
func (s *scene) operate(ctx context.Context, c contend.Contender) (result.Sample, error) {
	series := map[string][]float64{}
	clock := func(what string, began time.Time) {
		series[what] = append(series[what], float64(time.Since(began))/float64(time.Microsecond))
	}
	const most = 300
	end := time.Now().Add(s.span)
	for i := 0; i < most && (i == 0 || time.Now().Before(end)); i++ {
		began := time.Now()
		held, err := c.Acquire(ctx, fmt.Sprint("job/", i))
		clock("acquire", began)
		if err != nil {
			return result.Sample{}, err
		}
		began = time.Now()
		err = held.(contend.Extender).Extend(ctx, s.scenario.ttl)
		clock("extend", began)
		if err != nil {
			return result.Sample{}, err
		}
		began = time.Now()
		err = held.Release(ctx)
		clock("release", began)
		if err != nil {
			return result.Sample{}, err
		}
	}
	return result.Sample{Series: series}, nil
}
