package page

import (
	"fmt"

	"github.com/holdfast-go/holdfast/bench/internal/result"
)

// Ours returns the contender that the others are compared with.
func Ours(s *result.Scenario) string {
	for _, c := range s.Contenders {
		if c.Role == "ours" {
			return c.Name
		}
	}
	return ""
}

// Ratio returns how many times better ours is than another, 0 if that cannot be
// told. A metric of rounds is compared round by round, and the ratio is the
// median of them: what slowed down a whole round does not change it.
func Ratio(s *result.Scenario, m result.Metric, ours, other string) float64 {
	if ours == other {
		return 0
	}
	if m.Quantile > 0 {
		a, b := s.Figure(ours, m), s.Figure(other, m)
		if !a.Known || !b.Known || a.Value <= 0 || b.Value <= 0 {
			return 0
		}
		return m.Better(a.Value, b.Value)
	}
	own := byRound(s, m, ours)
	var ratios []float64
	for round, b := range byRound(s, m, other) {
		if a, ok := own[round]; ok && a > 0 && b > 0 {
			ratios = append(ratios, m.Better(a, b))
		}
	}
	if len(ratios) == 0 {
		return 0
	}
	return result.Quantile(ratios, 0.5)
}

func byRound(s *result.Scenario, m result.Metric, contender string) map[int]float64 {
	values := map[int]float64{}
	for _, sample := range s.Samples {
		if v, ok := sample.Values[m.Key]; ok && sample.Contender == contender {
			values[sample.Round] = v
		}
	}
	return values
}

// times writes a ratio.
func times(x float64) string {
	switch {
	case x < 10:
		return fmt.Sprintf("%.2f×", x)
	case x < 100:
		return fmt.Sprintf("%.1f×", x)
	}
	return fmt.Sprintf("%.0f×", x)
}
