//go:build unix

package main

import (
	"fmt"

	"github.com/holdfast-go/holdfast/bench/internal/lockers"
	"github.com/holdfast-go/holdfast/internal/measure"
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
	return all
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
