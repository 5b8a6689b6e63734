//go:build unix

package main

import (
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/contend"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/bench/internal/stage"
)

// idleWaiters is what it costs the server that somebody waits.
func idleWaiters() scenario {
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
		kinds:   waiting(),
		nodes:   1,
		ttl:     6 * time.Second,
		measure: (*scene).waiters,
	}
}

func (s *scene) waiters(k contend.Kind) (result.Sample, error) {
	const processes, each = 5, 10
	var sample result.Sample
	err := s.peers(k, processes+1, func(peers []*peer) error {
		holder, others := peers[0], peers[1:]
		if _, err := holder.acquire("job"); err != nil {
			return err
		}
		for _, p := range others {
			if _, err := p.tell("wait", "job", each, 0); err != nil {
				return err
			}
		}
		time.Sleep(500 * time.Millisecond) // They settle.
		// Long enough for renewals to be among what is seen, and not so long that
		// a lock runs out that is not renewed.
		span := s.scenario.ttl * 2 / 3
		requests, err := stage.CountRequests(s.redis[0].Addr)
		if err != nil {
			return err
		}
		before := stage.ReadRedis(s.redis[0])
		time.Sleep(span)
		used := stage.ReadRedis(s.redis[0]).Sub(before)
		sent, err := requests()
		if err != nil {
			return err
		}
		drained, err := drain(holder, others)
		sample.Values = map[string]float64{
			"commands": float64(sent) / span.Seconds() / (processes * each),
			"bytes":    used.In / span.Seconds(),
			"server":   used.CPU / span.Seconds() * 100,
			"drain":    float64(drained) / float64(time.Microsecond),
		}
		return err
	})
	return sample, err
}

// drain releases the lock, and returns how long it took until every waiter had
// had it.
func drain(holder *peer, others []*peer) (time.Duration, error) {
	released, err := holder.release("job")
	if err != nil {
		return 0, err
	}
	var last time.Duration
	for _, p := range others {
		at, err := p.tell("rest", "job", 0, 0)
		if err != nil {
			return 0, err
		}
		last = max(last, time.Duration(at[0]))
	}
	return last - released, nil
}
