// Package result keeps what was measured, and reckons with it.
package result

import (
	"slices"
	"time"
)

// A Metric is one figure that a scenario yields for each contender.
type Metric struct {
	Key   string `json:"key"`
	Title string `json:"title"`
	Unit  Unit   `json:"unit"`

	// Lower: less is better.
	Lower bool `json:"lower,omitempty"`

	// Quantile is the one of all single measurements (Sample.Series) that this
	// metric is. If it is 0 the metric is the median of the rounds.
	Quantile float64 `json:"quantile,omitempty"`

	// Chart: it is drawn.
	Chart bool `json:"chart,omitempty"`
}

// A Unit says how a figure is written.
type Unit string

// The units.
const (
	Rate     Unit = "/s"
	Count    Unit = ""
	Bytes    Unit = "B"
	Micros   Unit = "µs" // written as µs, ms or s
	Percent  Unit = "%"
	Fraction Unit = "of 1"
)

// A Contender is one that took part.
type Contender struct {
	Name     string `json:"name"`
	Settings string `json:"settings"`
	Role     string `json:"role"`
}

// A Sample is what one contender did in one round.
type Sample struct {
	Contender string               `json:"contender"`
	Round     int                  `json:"round"`
	Stuck     bool                 `json:"stuck,omitempty"` // it did not come to an end
	Values    map[string]float64   `json:"values,omitempty"`
	Series    map[string][]float64 `json:"series,omitempty"`
}

// A Scenario is what was measured of one scenario.
type Scenario struct {
	Name       string      `json:"name"`
	Title      string      `json:"title"`
	Group      string      `json:"group"`
	About      string      `json:"about"`
	Date       time.Time   `json:"date"`
	Rounds     int         `json:"rounds"`
	Load       []float64   `json:"load"`   // average of a minute, before each round
	Stolen     float64     `json:"stolen"` // share of the CPU time that the host gave to others
	Machine    Machine     `json:"machine"`
	Metrics    []Metric    `json:"metrics"`
	Contenders []Contender `json:"contenders"`
	Samples    []Sample    `json:"samples"`
}

// A Figure is a metric of one contender over all rounds.
type Figure struct {
	Value    float64
	Min, Max float64 // of the rounds; of a quantile, the value itself
	Known    bool
}

// Figure reckons one.
func (s *Scenario) Figure(contender string, m Metric) Figure {
	var values []float64
	for _, sample := range s.Samples {
		if sample.Contender != contender {
			continue
		}
		if m.Quantile > 0 {
			values = append(values, sample.Series[m.Key]...)
		} else if v, ok := sample.Values[m.Key]; ok {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return Figure{}
	}
	if m.Quantile > 0 {
		v := Quantile(values, m.Quantile)
		return Figure{Value: v, Min: v, Max: v, Known: true}
	}
	return Figure{Value: Quantile(values, 0.5), Min: slices.Min(values), Max: slices.Max(values), Known: true}
}

// Better returns how many times better a is than b.
func (m Metric) Better(a, b float64) float64 {
	if m.Lower {
		a, b = b, a
	}
	return a / b
}

// Quantile returns a quantile of the values, between the two nearest of them.
func Quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (sorted[high]-sorted[low])*(at-float64(low))
}

// Jain returns Jain's index of fairness: 1 if all shares are equal, 1/n if one
// has everything.
func Jain(shares []float64) float64 {
	var sum, squares float64
	for _, x := range shares {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(shares)) * squares)
}
