//go:build unix

package gauge

import (
	"math"
	"slices"
	"time"
)

// Times are how long many calls of a kind took.
type Times struct {
	Count int           `json:"count"`
	P50   time.Duration `json:"p50_ns"`
	P99   time.Duration `json:"p99_ns"`
	P999  time.Duration `json:"p999_ns"`
	Max   time.Duration `json:"max_ns"`

	// Bins count them: bin i has those of at least Edge(i) and less than
	// Edge(i+1).
	Bins []Bin `json:"bins"`
}

// A Bin counts what took at least From, and less than the next bin's From.
type Bin struct {
	From  time.Duration `json:"from_ns"`
	Count int           `json:"count"`
}

// binsPerDecade makes bins that look even on a logarithmic scale.
const binsPerDecade = 8

// newTimes sums up; it sorts what it is given. It returns nil for nothing.
func newTimes(all []time.Duration) *Times {
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	t := &Times{
		Count: len(all),
		P50:   quantile(all, 0.5),
		P99:   quantile(all, 0.99),
		P999:  quantile(all, 0.999),
		Max:   all[len(all)-1],
	}
	first, last := binOf(all[0]), binOf(t.Max)
	for i := first; i <= last; i++ {
		t.Bins = append(t.Bins, Bin{From: edge(i)})
	}
	for _, d := range all {
		t.Bins[binOf(d)-first].Count++
	}
	return t
}

// quantile returns the value that so many of the sorted values do not exceed.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, max(0, int(math.Ceil(q*float64(len(sorted))))-1))]
}

func binOf(d time.Duration) int {
	return int(math.Floor(math.Log10(float64(max(d, 1))) * binsPerDecade))
}

func edge(bin int) time.Duration {
	return time.Duration(math.Ceil(math.Pow(10, float64(bin)/binsPerDecade)))
}
