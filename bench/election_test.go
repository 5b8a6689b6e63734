//go:build unix

package main

import (
	"context"
	"maps"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name string
		seen []sighting
		want map[string]float64
	}{
		{"none", nil, map[string]float64{"leaderless": 100}},
		{
			"one after the other, reported late",
			[]sighting{{1, 7, 4 * s, 10 * s}, {0, 5, 0, s}, {0, 5, s, 2 * s}},
			map[string]float64{"terms": 2, "leaderless": 20},
		},
		{
			"a leader that goes on after it was stopped",
			[]sighting{{0, 5, 0, 2 * s}, {1, 7, 3 * s, 7 * s}, {1, 7, 7 * s, 10 * s}, {0, 5, 5 * s, 8 * s}},
			map[string]float64{"terms": 2, "leaderless": 10, "overlaps": 1, "longest": 3e6},
		},
		{
			"two overlaps, tokens that fall and repeat",
			[]sighting{{0, 5, 0, 4 * s}, {1, 4, 3 * s, 8 * s}, {2, 5, 7500 * time.Millisecond, 10 * s}},
			map[string]float64{"terms": 3, "falling": 2, "overlaps": 2, "longest": 1e6},
		},
		{
			"two terms of one candidate are none, and what is later does not count",
			[]sighting{{0, 5, 0, 9 * s}, {0, 6, 9 * s, 12 * s}},
			map[string]float64{"terms": 2},
		},
	} {
		got := judge(tt.seen, 0, 10*s)
		maps.DeleteFunc(got, func(_ string, v float64) bool { return v == 0 })
		if !maps.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// A term is seen until its context ends, and not after.
func TestWatchTerm(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all []sighting
	watchTerm(ctx, 3, func(s sighting) {
		if ctx.Err() != nil && len(all) == 0 {
			t.Error("nothing is reported before the end")
		}
		all = append(all, s)
		cancel()
	})
	for i, s := range all {
		if s.Token != 3 || s.From == 0 || s.To < s.From || i > 0 && s.From < all[i-1].To {
			t.Errorf("the sightings %+v", all)
		}
	}
}
