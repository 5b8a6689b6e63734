//go:build unix

package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/lockers"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/internal/measure"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// etcdScenarios measure pairs and hand-overs on clusters of one and of three members.
func etcdScenarios() (all []scenario) {
	for _, members := range []int{1, 3} {
		for _, goroutines := range []int{1, 16, 64} {
			sc := uncontended(goroutines, anyCore)
			sc.name = fmt.Sprintf("etcd-%d-uncontended-%d", members, goroutines)
			sc.about = "Acquire and release in a loop, one process. All members write to the disk of this machine."
			sc.measure = pairs(goroutines, measure.OwnNames("job"))
			all = append(all, sc.onEtcd(members))
		}
		sc := handOver()
		sc.name = fmt.Sprintf("etcd-%d-handover", members)
		all = append(all, sc.onEtcd(members))
	}
	return append(all, etcdHeld(), etcdLeaderKilled(), etcdElection())
}

// etcdHeld measures the cost of holding many locks.
func etcdHeld() scenario {
	const locks, ttl = 1000, 10 * time.Second
	sc := scenario{
		name:  "etcd-held",
		title: "1,000 locks held by one process",
		about: fmt.Sprintf("Nothing happens but renewal, for one TTL of %v. The messages are those that the members receive from clients, "+
			"the keep-alives among them; the CPU is that of all members.", ttl),
		metrics: []result.Metric{
			{Key: "keepAlives", Title: "keep-alive messages/s", Unit: result.Rate, Lower: true},
			{Key: "messages", Title: "messages/s", Unit: result.Rate, Lower: true},
			{Key: "server", Title: "server CPU", Unit: result.Percent, Lower: true, Chart: true},
			{Key: "client", Title: "client CPU", Unit: result.Percent, Lower: true, Chart: true},
			{Key: "goroutines", Title: "goroutines", Unit: result.Count, Lower: true},
			{Key: "heap", Title: "memory for a lock", Unit: result.Bytes, Lower: true},
		},
		ttl: ttl, timeout: time.Minute,
		measure: func(t *trial) (sample result.Sample, err error) {
			empty, goroutines := measure.HeapInUse(), runtime.NumGoroutine()
			err = measure.HoldMany(t.ctx, t.locker, locks, measure.OwnNames("job"), func() error {
				heap := measure.HeapInUse()
				before, usedBefore := t.readEtcd(), measure.ReadUsage()
				time.Sleep(ttl)
				served, used := t.readEtcd(), measure.ReadUsage().Sub(usedBefore)
				sample.Values = map[string]float64{
					"keepAlives": (served.keepAlives - before.keepAlives) / ttl.Seconds(),
					"messages":   (served.messages - before.messages) / ttl.Seconds(),
					"server":     (served.cpu - before.cpu) / ttl.Seconds() * 100,
					"client":     used.CPU / ttl.Seconds() * 100,
					"goroutines": float64(runtime.NumGoroutine() - goroutines),
					"heap":       (heap - empty) / locks,
				}
				return nil
			})
			if t.contender.Role != lockers.Ours && sample.Values != nil {
				err = nil // A release that finds no lease: the lock was lost, and the costs are known.
			}
			return sample, err
		},
	}
	return sc.onEtcd(3)
}

// etcdLeaderKilled measures the renewals of one hold while the leader of the cluster is killed.
func etcdLeaderKilled() scenario {
	const ttl, kills = 6 * time.Second, 2
	sc := scenario{
		name:  "etcd-leader-killed",
		title: "A hold while the leader of the cluster is killed",
		about: fmt.Sprintf("The leader is killed at a random time between two renewals of one lock (TTL %v), and started again two TTLs later, "+
			"%d times in a round: the longest time between the requests of two renewals that were confirmed, which is 2 s without faults, and "+
			"the least time that the hold had left.", ttl, kills),
		metrics: []result.Metric{
			{Key: "gap", Title: "longest between renewals", Unit: result.Micros, Lower: true, Quantile: 1, Chart: true},
			{Key: "gap", Title: "median", Unit: result.Micros, Lower: true, Quantile: 0.5},
			{Key: "left", Title: "least time left", Unit: result.Micros, Quantile: 1e-9}, // the least
		},
		ttl: ttl, timeout: 2 * time.Minute,
		measure: func(t *trial) (sample result.Sample, err error) {
			held, err := t.locker.Acquire(t.ctx, "job")
			if err != nil {
				return sample, err
			}
			lock := held.(interface {
				Deadline() time.Time
				Err() error
			})
			sample.Series = map[string][]float64{}
			for range kills {
				time.Sleep(rand.N(ttl / 3))
				leader := t.etcdMember(true)
				deadline, gap, left := lock.Deadline(), time.Duration(0), ttl
				leader.Kill()
				for end := time.Now().Add(2 * ttl); time.Now().Before(end); time.Sleep(time.Millisecond) {
					now := lock.Deadline()
					gap, left = max(gap, now.Sub(deadline)), min(left, time.Until(now))
					deadline = now
				}
				if err := lock.Err(); err != nil {
					return sample, err
				}
				sample.Series["gap"] = append(sample.Series["gap"], microseconds(gap)...)
				sample.Series["left"] = append(sample.Series["left"], microseconds(left)...)
				leader.Start()
			}
			return sample, held.Release(t.ctx)
		},
	}
	sc = sc.onEtcd(3)
	sc.contenders = sc.contenders[:1]
	return sc
}

// etcdMember returns the leader, or a member that is not.
func (r *scenarioRun) etcdMember(leads bool) *servers.Etcd {
	for {
		for _, m := range r.etcd {
			if m.Leads() == leads {
				return m
			}
		}
	}
}

// An etcdUsage is what the members of a cluster have done and used since they were started.
type etcdUsage struct {
	messages, keepAlives float64 // from clients
	cpu                  float64 // in seconds
}

func (r *scenarioRun) readEtcd() (u etcdUsage) {
	for _, m := range r.etcd {
		for name, value := range m.Metrics() {
			switch {
			case name == "process_cpu_seconds_total":
				u.cpu += value
			case strings.HasPrefix(name, "grpc_server_msg_received_total{"):
				u.messages += value
				if strings.Contains(name, `"LeaseKeepAlive"`) {
					u.keepAlives += value
				}
			}
		}
	}
	return u
}

// onEtcd moves a scenario to a cluster.
func (sc scenario) onEtcd(members int) scenario {
	sc.group = "etcd: one member"
	if members > 1 {
		sc.group = fmt.Sprintf("etcd: %d members", members)
	}
	sc.contenders, sc.nodes, sc.etcdMembers = lockers.Etcd(), 0, members
	return sc
}
