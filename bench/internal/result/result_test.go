package result

import (
	"math"
	"path/filepath"
	"reflect"
	"testing"
)

func TestQuantile(t *testing.T) {
	values := []float64{4, 1, 3, 2}
	for q, want := range map[float64]float64{0: 1, 0.5: 2.5, 1: 4, 0.25: 1.75} {
		if got := Quantile(values, q); math.Abs(got-want) > 1e-9 {
			t.Errorf("Quantile(%v) is %v, want %v", q, got, want)
		}
	}
	if got := Quantile([]float64{7}, 0.99); got != 7 {
		t.Errorf("the quantile of one value is %v", got)
	}
	if values[0] != 4 {
		t.Error("Quantile sorted the values of its caller")
	}
}

func TestJain(t *testing.T) {
	for _, test := range []struct {
		shares []float64
		want   float64
	}{
		{[]float64{5, 5, 5, 5}, 1},
		{[]float64{8, 0, 0, 0}, 0.25},
		{[]float64{0, 0}, 0},
	} {
		if got := Jain(test.shares); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("Jain(%v) is %v, want %v", test.shares, got, test.want)
		}
	}
}

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
