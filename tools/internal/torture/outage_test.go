//go:build unix

package torture

import (
	"slices"
	"testing"
	"time"
)

func TestOutages(t *testing.T) {
	of := func(from, to time.Duration) interval { return interval{from: from * ms, to: to * ms} }
	for _, tt := range []struct {
		name     string
		n        int
		servers  map[int][]interval
		recovery time.Duration
		want     []interval
	}{
		{"nothing", 1, nil, 0, nil},
		{"no servers of ours", 0, nil, 0, nil},
		{"the only one", 1, map[int][]interval{1: {of(10, 20), of(50, 60)}}, 5 * ms, []interval{of(10, 25), of(50, 65)}},
		{"again before it has recovered", 1, map[int][]interval{1: {of(10, 20), of(22, 30)}}, 5 * ms, []interval{of(10, 35)}},
		{"a minority", 5, map[int][]interval{1: {of(10, 20)}, 2: {of(15, 30)}}, 0, nil},
		{"a majority", 3, map[int][]interval{1: {of(10, 20)}, 2: {of(15, 30)}}, 0, []interval{of(15, 20)}},
		{"to the end", 1, map[int][]interval{1: {{from: 10 * ms, to: never}}}, time.Second, []interval{{from: 10 * ms, to: never}}},
	} {
		h := newHistory()
		h.serverFaults = tt.servers
		if got := h.outages(tt.n, tt.recovery); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestLongestWithoutOutage(t *testing.T) {
	outages := []interval{{from: 10, to: 20}, {from: 50, to: 60}}
	for _, tt := range []struct{ from, to, want time.Duration }{
		{0, 5, 5}, {0, 100, 40}, {15, 100, 40}, {12, 18, 0}, {55, 100, 40}, {20, 50, 30}, {70, 80, 10}, {0, 55, 30},
	} {
		if got := longestWithoutOutage(tt.from, tt.to, outages); got != tt.want {
			t.Errorf("from %d to %d: %d, want %d", tt.from, tt.to, got, tt.want)
		}
	}
}
