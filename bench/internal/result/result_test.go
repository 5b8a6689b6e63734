//go:build unix

package result

import (
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
)

func TestFigure(t *testing.T) {
	s := &Scenario{Samples: []Sample{
		{Contender: "a", Round: 0, Values: map[string]float64{"rate": 10}, Series: map[string][]float64{"took": {1, 2}}},
		{Contender: "a", Round: 1, Values: map[string]float64{"rate": 30}, Series: map[string][]float64{"took": {9}}},
		{Contender: "a", Round: 2, Values: map[string]float64{"rate": 20}},
		{Contender: "b", Round: 0, Values: map[string]float64{"rate": 1000}},
		{Contender: "b", Round: 1, Stuck: true},
	}}
	if got, want := s.Figure("a", Metric{Key: "rate"}), (Figure{Value: 20, Min: 10, Max: 30, Known: true}); got != want {
		t.Errorf("the median of rounds is %+v, want %+v", got, want)
	}
	if got := s.Figure("a", Metric{Key: "took", Quantile: 1}); got.Value != 9 {
		t.Errorf("the greatest of all rounds is %+v, want 9", got)
	}
	if got := s.Figure("b", Metric{Key: "took", Quantile: 1}); got.Known {
		t.Errorf("a figure of nothing is %+v", got)
	}
}

func TestRatio(t *testing.T) {
	s := &Scenario{Contenders: []Contender{
		{Name: "first", Role: "ours"}, {Name: "fast", Role: "raw"}, {Name: "slow", Role: "rival"}, {Name: "never", Role: "rival"},
		{Name: "second", Role: "ours"}, {Name: "other", Role: "rival", Against: "second"}, {Name: "another", Against: "absent"},
	}}
	for round, rate := range []float64{1000, 100} {
		for name, factor := range map[string]float64{"first": 1, "fast": 2, "slow": 0.25, "second": 10, "other": 20, "another": 2} {
			s.Samples = append(s.Samples, Sample{Contender: name, Round: round, Values: map[string]float64{"rate": rate * factor}})
		}
		s.Samples = append(s.Samples, Sample{Contender: "never", Round: round, Stuck: true})
	}
	for name, want := range map[string]float64{"first": 0, "fast": 0.5, "slow": 4, "never": 0, "second": 0.1, "other": 0.5, "another": 0.5} {
		i := slices.IndexFunc(s.Contenders, func(c Contender) bool { return c.Name == name })
		if got := s.Ratio(s.Contenders[i], Metric{Key: "rate"}); math.Abs(got-want) > 1e-9 {
			t.Errorf("the ratio to %s is %v, want %v", name, got, want)
		}
	}
	if got := s.Ratio(s.Contenders[1], Metric{Key: "rate", Lower: true}); math.Abs(got-2) > 1e-9 {
		t.Errorf("where less is better the ratio is %v, want 2", got)
	}
	if n := s.Stuck("never"); n != 2 {
		t.Errorf("never was stuck in %d rounds", n)
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder", "results.json")
	empty, err := Load(path)
	if err != nil || len(empty) != 0 {
		t.Fatalf("Load of no file: %v, %v", empty, err)
	}
	set := Set{"one": {Name: "one", Rounds: 5, Metrics: []Metric{{Key: "k", Unit: Micros, Lower: true}}}}
	if err := set.Save(path); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(path); err != nil || !reflect.DeepEqual(got, set) {
		t.Errorf("Load: %v, %v, want what was saved", got["one"], err)
	}
}
