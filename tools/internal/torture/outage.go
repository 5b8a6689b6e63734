//go:build unix

package torture

import (
	"cmp"
	"slices"
	"time"
)

// outages returns the times, in order and disjoint, in which the store could grant nothing:
// a majority of its n servers had a fault, or had recovered from one less than recovery
// ago. For a single server that is any fault. A fault of a minority of a quorum is no
// outage.
func (h *history) outages(n int, recovery time.Duration) []interval {
	type change struct {
		at    time.Duration
		delta int
	}
	var changes []change
	for _, intervals := range h.serverFaults {
		for _, s := range intervals {
			changes = append(changes, change{s.from, 1}, change{min(s.to, never-recovery) + recovery, -1})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), b.delta-a.delta) })
	majority := n/2 + 1
	var outages []interval
	down := 0
	for _, t := range changes {
		was := n-down < majority
		down += t.delta
		is := n-down < majority
		switch {
		case is && !was:
			outages = append(outages, interval{from: t.at, to: never})
		case was && !is:
			outages[len(outages)-1].to = t.at
		}
	}
	return outages
}

// stopSlack is how much longer than its TTL a lock may last on a busy machine, as its
// holder sees it.
const stopSlack = 100 * time.Millisecond

// serverStops returns the times in which all servers of the store were stopped.
func (h *history) serverStops() []interval {
	var stops []interval
	for _, intervals := range h.serverFaults {
		n := 0
		for _, s := range intervals {
			if s.fault != Outage {
				continue
			}
			if n == len(stops) {
				stops = append(stops, s)
			}
			stops[n].from, stops[n].to = max(stops[n].from, s.from), min(stops[n].to, s.to)
			n++
		}
	}
	return stops
}

// longestWithoutOutage returns the longest time between two moments without an outage.
func longestWithoutOutage(from, to time.Duration, outages []interval) time.Duration {
	var most time.Duration
	for _, o := range outages {
		if o.to <= from {
			continue
		}
		if o.from >= to {
			break
		}
		most = max(most, o.from-from)
		from = o.to
	}
	return max(most, to-from)
}
