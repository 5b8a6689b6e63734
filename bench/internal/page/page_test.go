package page

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/bench/internal/result"
)

// sample is a scenario in which Holdfast is slower than one and faster than the
// other, and whose second round was ten times as slow as the first for all.
func sample() *result.Scenario {
	s := &result.Scenario{
		Name: "some-name", Group: "A group", Title: "A <title>", Rounds: 2, Load: []float64{1, 2},
		Metrics: []result.Metric{{Key: "rate", Title: "pairs/s", Unit: result.Rate, Chart: true}},
		Contenders: []result.Contender{
			{Name: "Holdfast", Role: "ours", Settings: "s"}, {Name: "fast", Role: "raw"}, {Name: "slow", Role: "rival"}, {Name: "never", Role: "rival"},
		},
	}
	for round, rate := range []float64{1000, 100} {
		s.Samples = append(s.Samples,
			result.Sample{Contender: "Holdfast", Round: round, Values: map[string]float64{"rate": rate}},
			result.Sample{Contender: "fast", Round: round, Values: map[string]float64{"rate": rate * 2}},
			result.Sample{Contender: "slow", Round: round, Values: map[string]float64{"rate": rate / 4}},
			result.Sample{Contender: "never", Round: round, Stuck: true},
		)
	}
	return s
}

func TestRatio(t *testing.T) {
	s := sample()
	for other, want := range map[string]float64{"fast": 0.5, "slow": 4, "never": 0, "Holdfast": 0} {
		if got := Ratio(s, s.Metrics[0], "Holdfast", other); math.Abs(got-want) > 1e-9 {
			t.Errorf("the ratio to %s is %v, want %v", other, got, want)
		}
	}
	lower := s.Metrics[0]
	lower.Lower = true
	if got := Ratio(s, lower, "Holdfast", "fast"); math.Abs(got-2) > 1e-9 {
		t.Errorf("where less is better the ratio is %v, want 2", got)
	}
}

func TestPage(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "benchmarks")
	path := folder + ".md"
	if err := Write(path, folder, []*result.Scenario{sample()}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| some-name | pairs/s | fast (0.50×) |", // among the losses
		"(benchmarks/some-name.svg)",
		"| slow | 138 (25.0–250) | 4.00× |",
		"never did not come to an end in 2 of 2 rounds",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page does not contain %q:\n%s", want, text)
		}
	}
	checkXML(t, filepath.Join(folder, "some-name.svg"))
}

func checkXML(t *testing.T, path string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for decoder := xml.NewDecoder(file); ; {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%s is not XML: %v", path, err)
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, test := range []struct {
		x    float64
		unit result.Unit
		want string
	}{
		{123_456, result.Rate, "123,000"},
		{0, result.Rate, "0"},
		{0.05, result.Rate, "0.05"},
		{999.4, result.Micros, "999 µs"},
		{999.6, result.Micros, "1.00 ms"},
		{2_500_000, result.Micros, "2.50 s"},
		{9_999, result.Bytes, "10,000 B"},
		{15_000, result.Bytes, "15.0 kB"},
		{12.34, result.Percent, "12.3 %"},
	} {
		if got := number(test.x, test.unit); got != test.want {
			t.Errorf("number(%v, %q) is %q, want %q", test.x, test.unit, got, test.want)
		}
	}
}
