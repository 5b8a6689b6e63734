//go:build unix

package measure

import (
	"math"
	"slices"
	"time"
)

// Times are the durations of many calls of one kind.
type Times struct {
	Count int           `json:"count"`
	P50   time.Duration `json:"p50_ns"`
	P99   time.Duration `json:"p99_ns"`
	P999  time.Duration `json:"p999_ns"`
	Max   time.Duration `json:"max_ns"`

	// Bins count the durations. A bin ends where the next one begins.
	Bins []Bin `json:"bins"`
}

// A Bin counts the durations of at least From, and less than the next bin's From.
type Bin struct {
	From  time.Duration `json:"from_ns"`
	Count int           `json:"count"`
}

// binsPerDecade makes bins that are even on a logarithmic scale.
const binsPerDecade = 8

// newTimes summarizes durations. It returns nil if there are none.
func newTimes(all []time.Duration) *Times {
	if len(all) == 0 {
		return nil
	}
	t := &Times{
		Count: len(all),
		P50:   Quantile(all, 0.5),
		P99:   Quantile(all, 0.99),
		P999:  Quantile(all, 0.999),
		Max:   slices.Max(all),
	}
	first := binIndex(slices.Min(all))
	for i := first; i <= binIndex(t.Max); i++ {
		t.Bins = append(t.Bins, Bin{From: binBound(i)})
	}
	for _, d := range all {
		t.Bins[binIndex(d)-first].Count++
	}
	return t
}

func binIndex(d time.Duration) int {
	return int(math.Floor(math.Log10(float64(max(d, 1))) * binsPerDecade))
}

func binBound(bin int) time.Duration {
	return time.Duration(math.Ceil(math.Pow(10, float64(bin)/binsPerDecade)))
}

// Quantile returns a quantile of the values, interpolated between the two nearest of them.
func Quantile[T ~int64 | ~float64](values []T, q float64) T {
	sorted := slices.Sorted(slices.Values(values))
	position := q * float64(len(sorted)-1)
	low := int(position)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + T(float64(sorted[high]-sorted[low])*(position-float64(low)))
}

// Jain returns Jain's index of fairness (Jain, Chiu and Hawe, 1984): 1 if all shares are equal,
// 1/n if one of n shares is everything, 0 if all are zero.
func Jain(shares []float64) float64 {
	var total, squares float64
	for _, share := range shares {
		total += share
		squares += share * share
	}
	if squares == 0 {
		return 0
	}
	return total * total / (float64(len(shares)) * squares)
}

// Sum returns the sum of the counts.
func Sum(counts []float64) float64 {
	total := 0.0
	for _, count := range counts {
		total += count
	}
	return total
}
