//go:build unix

// Package result stores results and computes figures from them.
package result

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/measure"
)

// A Metric is one figure that a scenario measures for each contender.
type Metric struct {
	Key   string `json:"key"`
	Title string `json:"title"`
	Unit  Unit   `json:"unit"`

	// Lower reports whether less is better.
	Lower bool `json:"lower,omitempty"`

	// Quantile selects this quantile of all single measurements (Sample.Series). If it is
	// 0, the metric is the median of the rounds.
	Quantile float64 `json:"quantile,omitempty"`

	// Chart reports whether the metric is drawn.
	Chart bool `json:"chart,omitempty"`
}

// A Unit defines how a figure is written.
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

// A Contender is a contender that took part.
type Contender struct {
	Name     string `json:"name"`
	Settings string `json:"settings"`
	Role     string `json:"role"`

	// Against is the name of the Holdfast to compare with, "" for the first one.
	Against string `json:"against,omitempty"`
}

// A Sample is the result of one contender in one round.
type Sample struct {
	Contender string               `json:"contender"`
	Round     int                  `json:"round"`
	Stuck     bool                 `json:"stuck,omitempty"` // it did not finish
	Values    map[string]float64   `json:"values,omitempty"`
	Series    map[string][]float64 `json:"series,omitempty"`
}

// A Scenario is the result of one scenario.
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

// Figure computes a metric of one contender.
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
		v := measure.Quantile(values, m.Quantile)
		return Figure{Value: v, Min: v, Max: v, Known: true}
	}
	return Figure{Value: measure.Quantile(values, 0.5), Min: slices.Min(values), Max: slices.Max(values), Known: true}
}

// Ours returns the Holdfast that a contender is compared with: the one that it names, if that
// takes part, or the first one.
func (s *Scenario) Ours(c Contender) string {
	ours := ""
	for _, other := range s.Contenders {
		if other.Role == "ours" && (other.Name == c.Against || ours == "") {
			ours = other.Name
		}
	}
	return ours
}

// Ratio returns how many times better Holdfast is than a contender, 0 if that is unknown. A metric
// of rounds is compared round by round, and the ratio is the median of these ratios: an event
// that slowed down a whole round does not change it.
func (s *Scenario) Ratio(c Contender, m Metric) float64 {
	ours := s.Ours(c)
	if ours == c.Name {
		return 0
	}
	if m.Quantile > 0 {
		a, b := s.Figure(ours, m), s.Figure(c.Name, m)
		if !a.Known || !b.Known {
			return 0
		}
		return m.ratio(a.Value, b.Value)
	}
	own, other := s.valueByRound(ours, m), s.valueByRound(c.Name, m)
	var ratios []float64
	for round, value := range other {
		if r := m.ratio(own[round], value); r > 0 {
			ratios = append(ratios, r)
		}
	}
	if len(ratios) == 0 {
		return 0
	}
	return measure.Quantile(ratios, 0.5)
}

// ratio returns how many times better a is than b, 0 if one of them is not positive.
func (m Metric) ratio(a, b float64) float64 {
	if a <= 0 || b <= 0 {
		return 0
	}
	if m.Lower {
		return b / a
	}
	return a / b
}

func (s *Scenario) valueByRound(contender string, m Metric) map[int]float64 {
	values := map[int]float64{}
	for _, sample := range s.Samples {
		if v, ok := sample.Values[m.Key]; ok && sample.Contender == contender {
			values[sample.Round] = v
		}
	}
	return values
}

// Stuck returns in how many rounds a contender did not finish.
func (s *Scenario) Stuck(contender string) int {
	n := 0
	for _, sample := range s.Samples {
		if sample.Contender == contender && sample.Stuck {
			n++
		}
	}
	return n
}
