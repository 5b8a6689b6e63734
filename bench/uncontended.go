//go:build unix

package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"github.com/holdfast-go/holdfast/bench/internal/contend"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/bench/internal/stage"
)

// throughputMetrics are the speed of a pair of acquire and release, and its cost.
var throughputMetrics = []result.Metric{
	{Key: "rate", Title: "pairs/s", Unit: result.Rate, Chart: true},
	{Key: "allocs", Title: "allocations", Unit: result.Count, Lower: true},
	{Key: "bytes", Title: "memory", Unit: result.Bytes, Lower: true},
	{Key: "client", Title: "client CPU", Unit: result.Micros, Lower: true},
	{Key: "server", Title: "server CPU", Unit: result.Micros, Lower: true},
	{Key: "wire", Title: "sent", Unit: result.Bytes, Lower: true},
}

// uncontended is the speed of acquire and release where nobody is in the way.
func uncontended(goroutines int) scenario {
	return scenario{
		name:    fmt.Sprint("redis-uncontended-", goroutines),
		group:   "Redis: uncontended",
		title:   counted(goroutines) + ", each on a name of its own",
		about:   "Acquire and release in a loop, one server, one process.",
		metrics: throughputMetrics,
		kinds:   slices.Concat(contend.Redis(), contend.RedisDefaults(), contend.RedisRaw()),
		nodes:   1,
		measure: func(s *scene, k contend.Kind) (result.Sample, error) { return s.throughput(k, goroutines, ownNames) },
	}
}

// throughput measures pairs per second and what a pair costs.
func (s *scene) throughput(k contend.Kind, goroutines int, name func(g int) string) (result.Sample, error) {
	var sample result.Sample
	err := s.with(k, func(ctx context.Context, c contend.Contender) error {
		if _, err := load(ctx, c, goroutines, name, s.span/4); err != nil { // warm up
			return err
		}
		runtime.GC()
		before, err := s.read()
		if err != nil {
			return err
		}
		counts, err := load(ctx, c, goroutines, name, s.span)
		if err != nil {
			return err
		}
		after, err := s.read()
		if err != nil {
			return err
		}
		sample.Values = after.since(before, sum(counts))
		sample.Values["rate"] = sum(counts) / s.span.Seconds()
		return nil
	})
	return sample, err
}

// A reading is what this process and the servers have used. Of several Redis
// servers it is one: they all do the same.
type reading struct {
	self  stage.SelfUse
	redis *stage.RedisUse
	wal   float64
}

func (s *scene) read() (reading, error) {
	wal, err := s.wal()
	r := reading{wal: wal}
	if len(s.redis) > 0 {
		use := stage.ReadRedis(s.redis[0])
		r.redis = &use
	}
	r.self = stage.ReadSelf()
	return r, err
}

// since returns what a pair has cost.
func (r reading) since(before reading, pairs float64) map[string]float64 {
	used := r.self.Sub(before.self)
	values := map[string]float64{
		"allocs": used.Allocs / pairs,
		"bytes":  used.Bytes / pairs,
		"client": used.CPU / pairs * 1e6,
		"wal":    (r.wal - before.wal) / pairs,
	}
	if r.redis != nil {
		served := r.redis.Sub(*before.redis)
		values["server"] = served.CPU / pairs * 1e6
		values["wire"] = served.In / pairs
	}
	return values
}
