//go:build unix

package torture

import (
	"cmp"
	"slices"
	"time"
)

// outages are the times, in order and apart, when so many of the n servers of a
// store were harmed, or had just been, that it could grant nothing: any of a
// single one, a minority of a quorum's being of no consequence.
func (h *history) outages(n int, recovery time.Duration) []stretch {
	type turn struct {
		at   time.Duration
		more int
	}
	var turns []turn
	for _, stretches := range h.servers {
		for _, s := range stretches {
			turns = append(turns, turn{s.from, 1}, turn{min(s.to, never-recovery) + recovery, -1})
		}
	}
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Or(cmp.Compare(a.at, b.at), b.more-a.more) })
	majority := n/2 + 1
	var outages []stretch
	down := 0
	for _, t := range turns {
		was := n-down < majority
		down += t.more
		is := n-down < majority
		switch {
		case is && !was:
			outages = append(outages, stretch{from: t.at, to: never})
		case was && !is:
			outages[len(outages)-1].to = t.at
		}
	}
	return outages
}

// longest is the longest time between two moments without an outage.
func longest(from, to time.Duration, outages []stretch) time.Duration {
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
