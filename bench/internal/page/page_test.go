//go:build unix

package page

import (
	"encoding/xml"
	"errors"
	"io"
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
		Name: "some-name", Group: "A group", Title: "A <title>", Rounds: 2, Load: []float64{1, 2}, Machine: result.Machine{Commit: "abc"},
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

func TestResults(t *testing.T) {
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "results"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := WriteResults(filepath.Join(folder, "RESULTS.md"), []*result.Scenario{sample()}); err != nil {
		t.Fatal(err)
	}
	checkPage(t, filepath.Join(folder, "RESULTS.md"),
		"(results/some-name.svg)",
		"| fast | 1,100 (200–2,000) | **0.50×** |",
		"| slow | 138 (25.0–250) | 4.00× |",
		"never did not come to an end in 2 of 2 rounds",
		"- **Holdfast**: s.",
		"| some-name | 0001-01-01 00:00 | 2 | 1.0–2.0 | 0 % | abc |",
	)
	checkXML(t, filepath.Join(folder, "results", "some-name.svg"))
}

// A contender that Holdfast loses to is above one that it beats, a rate is shown as the time of
// a pair, and what was not measured is left out.
func TestAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "benchmarks.md")
	s := sample()
	s.Contenders[1], s.Contenders[2] = s.Contenders[2], s.Contenders[1]
	questions := []Question{{Chart: "some-chart", Title: "How <long>?", Text: "A text.", Columns: []Column{
		{Title: "nothing", Metric: "pairs/s", Scenarios: []string{"not-measured"}},
		{Title: "a pair", Metric: "pairs/s", Scenarios: []string{"not-measured", "some-name"}, PerPair: true},
		{Title: "rate", Metric: "pairs/s", Scenarios: []string{"some-name"}, NoRatio: true},
	}}}
	if err := WriteAnswers(path, questions, []*result.Scenario{s}); err != nil {
		t.Fatal(err)
	}
	checkPage(t, path, "(benchmarks/some-chart.svg)", "From `some-name` (abc).", `
|  | a pair | rate |
|---|--:|--:|
| **Holdfast** | 5.50 ms | 550 |
| fast | 2.75 ms (**0.50×**) | 1,100 |
| slow | 22.0 ms (4.00×) | 138 |
| never | did not end | did not end |
`)
	checkXML(t, filepath.Join(filepath.Dir(path), "benchmarks", "some-chart.svg"))
}

// A size of Holdfast is compared with another one, and is no loss. Below the table, the model is
// compared with what was measured.
func TestSizesAndChecks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "benchmarks.md")
	s := sample()
	s.Metrics[0].Lower = true
	s.Contenders = []result.Contender{
		{Name: "Holdfast", Role: "ours", Against: "Holdfast"}, {Name: "fast", Role: "ours", Against: "Holdfast"},
		{Name: "slow", Role: "ours", Against: "Holdfast"},
	}
	rate := Figure{Scenario: "some-name", Metric: "pairs/s"}
	fast := rate
	fast.Contender = "fast"
	questions := []Question{{
		Chart: "c", Columns: []Column{{Title: "a pair", Metric: "pairs/s", Scenarios: []string{"some-name"}}},
		Checks: []Check{
			{Title: "checked", Steps: []Step{{2, "Holdfast"}, {4, "slow"}}, Costs: rate, Actual: fast},
			{Title: "unknown", Steps: []Step{{1, "never"}}, Costs: rate, Actual: fast},
		},
	}}
	if err := WriteAnswers(path, questions, []*result.Scenario{s}); err != nil {
		t.Fatal(err)
	}
	checkPage(t, path, `
| **Holdfast** | 550 |
| **fast** | 1,100 (2.00×) |
| **slow** | 138 (0.25×) |
`, `
|  | by the model | measured | measured / model |
|---|--:|--:|--:|
| checked | 1,650 | 1,100 | 0.67× |

From`)
}

// The sizes of a contender are together in a chart, the least first, so that the growth can be
// seen. The contenders are in the order of their best sizes.
func TestOrderOfSizes(t *testing.T) {
	s := &result.Scenario{Name: "s", Group: "g", Rounds: 1, Metrics: []result.Metric{{Key: "k", Title: "in round trips", Lower: true, Chart: true}}}
	for _, c := range []struct {
		name  string
		value float64
	}{{"slow, 1,000 held", 9}, {"Holdfast, 1,000 held", 5}, {"Holdfast, 20 held", 2}, {"Holdfast, 3 held", 7}, {"slow, 3 held", 4}, {"raw, 2 nodes, fast", 6}, {"raw, 9 nodes", 3}} {
		s.Contenders = append(s.Contenders, result.Contender{Name: c.name, Role: "ours"})
		s.Samples = append(s.Samples, result.Sample{Contender: c.name, Values: map[string]float64{"k": c.value}})
	}
	var names []string
	for _, bar := range panelOf(s, s.Metrics[0], "title").Bars {
		names = append(names, bar.Label)
	}
	want := "Holdfast, 3 held; Holdfast, 20 held; Holdfast, 1,000 held; raw, 9 nodes; slow, 3 held; slow, 1,000 held; raw, 2 nodes, fast"
	if got := strings.Join(names, "; "); got != want {
		t.Errorf("the bars are %s, want %s", got, want)
	}
}

// The numbers of a chart have the name of what they count.
func TestUnitsOfCharts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "benchmarks.md")
	questions := []Question{
		{Chart: "rate", Columns: []Column{{Metric: "pairs/s", Scenarios: []string{"some-name"}}}},
		{Chart: "time", Columns: []Column{{Metric: "pairs/s", Scenarios: []string{"some-name"}, PerPair: true}}},
	}
	if err := WriteAnswers(path, questions, []*result.Scenario{sample()}); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(filepath.Dir(path), "benchmarks")
	checkPage(t, filepath.Join(folder, "rate.svg"), "A group: A &lt;title&gt; (pairs/s)</tspan> – more is better")
	checkPage(t, filepath.Join(folder, "time.svg"), "A group: A &lt;title&gt; (time of a pair)</tspan> – less is better")
}

// What is bold is less than 1 as it is shown.
func TestRatioCells(t *testing.T) {
	for ratio, want := range map[float64]string{0: "", 0.05: "**0.05×**", 0.994: "**0.99×**", 0.9951: "1.00×", 0.9999: "1.00×", 1: "1.00×", 1.23: "1.23×", 12.3: "12.3×"} {
		if got := ratioCell(result.Contender{Role: "rival"}, ratio); got != want {
			t.Errorf("ratioCell(%v) is %q, want %q", ratio, got, want)
		}
		if got, plain := ratioCell(result.Contender{Role: "ours", Against: "another size"}, ratio), strings.Trim(want, "*"); got != plain {
			t.Errorf("ratioCell(%v) of another size is %q, want %q", ratio, got, plain)
		}
	}
}

func checkPage(t *testing.T, path string, wants ...string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range wants {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page does not contain %q:\n%s", want, text)
		}
	}
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
		if got := formatNumber(test.x, test.unit); got != test.want {
			t.Errorf("number(%v, %q) is %q, want %q", test.x, test.unit, got, test.want)
		}
	}
}
