//go:build unix

package page

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/internal/measure"
)

// A Question is a section of the short page: a chart of its first column, and a table with a row
// for each contender.
type Question struct {
	Chart   string // the name of the file, without its ending
	Title   string
	Text    string
	Columns []Column
	Checks  []Check // of the table as a model
}

// A Check compares a figure with what follows from others: the sum of what steps cost.
type Check struct {
	Title  string
	Steps  []Step
	Costs  Figure // of each step; the contender is that of the step
	Actual Figure
}

// A Step is a contender of the scenario of costs, and how often its cost counts.
type Step struct {
	Times     float64
	Contender string
}

// A Figure is a metric of a contender, by titles.
type Figure struct{ Scenario, Contender, Metric string }

// A Column is one metric. A contender's figure is that of the first of the scenarios in which it
// takes part.
type Column struct {
	Title     string
	Metric    string // the title of the metric in its scenario
	Scenarios []string

	// PerPair converts pairs in a second into the time of a pair.
	PerPair bool

	// NoRatio leaves out how many times better Holdfast is.
	NoRatio bool
}

// An answer is a Question with the results.
type answer struct {
	Question
	Table, Sources, CheckTable string
}

// WriteAnswers writes the short page to path, and its charts into the folder of the same name.
// Scenarios that were not measured are left out, and so are columns and questions without any.
func WriteAnswers(path string, questions []Question, all []*result.Scenario) error {
	folder := strings.TrimSuffix(path, ".md")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	var answers []answer
	for _, q := range questions {
		columns := findColumns(q, all)
		if len(columns) == 0 {
			continue
		}
		var panels []measure.Panel
		var sources []string
		for i, column := range columns {
			for _, m := range column.measured {
				if i == 0 {
					panels = append(panels, panelOf(m.Scenario, m.metric, fmt.Sprintf("%s: %s (%s)", m.Group, m.Title, m.metric.Title)))
				}
				if source := fmt.Sprintf("`%s` (%s)", m.Name, m.Machine.Commit); !slices.Contains(sources, source) {
					sources = append(sources, source)
				}
			}
		}
		file := filepath.Join(folder, q.Chart+".svg")
		if err := os.WriteFile(file, []byte(measure.Chart(q.Title, panels)), 0o644); err != nil {
			return err
		}
		answers = append(answers, answer{q, answerTable(columns), strings.Join(sources, ", "), checkTable(q.Checks, all)})
	}
	return execute(path, "answers.md.tmpl", map[string]any{"Answers": answers, "All": all})
}

// A measuredColumn is a Column with the scenarios that were measured.
type measuredColumn struct {
	Column
	measured []measuredMetric
}

type measuredMetric struct {
	*result.Scenario
	metric result.Metric
}

func findColumns(q Question, all []*result.Scenario) []measuredColumn {
	var columns []measuredColumn
	for _, c := range q.Columns {
		column := measuredColumn{Column: c}
		for _, name := range c.Scenarios {
			for _, s := range all {
				i := slices.IndexFunc(s.Metrics, func(m result.Metric) bool { return m.Title == c.Metric })
				if s.Name != name || i < 0 {
					continue
				}
				m := measuredMetric{s, s.Metrics[i]}
				if c.PerPair {
					m = m.perPair()
				}
				column.measured = append(column.measured, m)
			}
		}
		if len(column.measured) > 0 {
			columns = append(columns, column)
		}
	}
	return columns
}

// perPair returns the scenario with the time of a pair instead of the rate of pairs.
func (m measuredMetric) perPair() measuredMetric {
	inverse := *m.Scenario
	inverse.Samples = slices.Clone(m.Samples)
	for i, sample := range m.Samples {
		if rate, ok := sample.Values[m.metric.Key]; ok {
			inverse.Samples[i].Values = map[string]float64{m.metric.Key: 1e6 / rate}
		}
	}
	m.metric.Title, m.metric.Unit, m.metric.Lower = "time of a pair", result.Micros, true
	return measuredMetric{&inverse, m.metric}
}

// answerTable returns a row for each contender: Holdfast first, then the others, beginning with
// those to which Holdfast loses most.
func answerTable(columns []measuredColumn) string {
	type row struct {
		cells []string
		order float64
	}
	var rows []row
	head := []string{""}
	seen := map[string]bool{}
	for _, column := range columns {
		head = append(head, column.Title)
		for _, m := range column.measured {
			for _, c := range m.Contenders {
				if seen[c.Name] {
					continue
				}
				seen[c.Name] = true
				r := row{cells: []string{contenderCell(c)}, order: math.Inf(1)}
				for _, column := range columns {
					cell, ratio := column.cell(c.Name)
					r.cells = append(r.cells, cell)
					if ratio > 0 {
						r.order = min(r.order, ratio)
					}
				}
				if c.Role == "ours" {
					r.order = 0
				}
				rows = append(rows, r)
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.order, b.order) })
	table := [][]string{head}
	for _, r := range rows {
		table = append(table, r.cells)
	}
	return formatTable(table)
}

// cell returns the figure of a contender, with how many times better Holdfast is, and that
// number: 0 if there is none.
func (column measuredColumn) cell(contender string) (text string, ratio float64) {
	for _, m := range column.measured {
		for _, c := range m.Contenders {
			if c.Name != contender {
				continue
			}
			if m.Stuck(c.Name) == m.Rounds {
				return "did not end", 0
			}
			text = withSpread(m.Figure(c.Name, m.metric), result.Metric{Unit: m.metric.Unit})
			if ratio = m.Ratio(c, m.metric); ratio == 0 || column.NoRatio || c.Role == "ours" && c.Against == "" {
				return text, 0
			}
			return text + " (" + ratioCell(c, ratio) + ")", ratio
		}
	}
	return "", 0
}

// checkTable returns a row for each check whose figures were measured, "" if there is none.
func checkTable(checks []Check, all []*result.Scenario) string {
	rows := [][]string{{"", "by the model", "measured", "measured / model"}}
	for _, check := range checks {
		model, complete := 0.0, true
		for _, step := range check.Steps {
			cost := check.Costs
			cost.Contender = step.Contender
			value, _, known := cost.find(all)
			model += step.Times * value
			complete = complete && known
		}
		actual, unit, known := check.Actual.find(all)
		if complete && known && model > 0 {
			rows = append(rows, []string{
				check.Title, formatNumber(model, unit), formatNumber(actual, unit), formatRatio(actual / model),
			})
		}
	}
	if len(rows) == 1 {
		return ""
	}
	return formatTable(rows)
}

// find returns a figure that was measured, with its unit.
func (f Figure) find(all []*result.Scenario) (float64, result.Unit, bool) {
	for _, s := range all {
		i := slices.IndexFunc(s.Metrics, func(m result.Metric) bool { return m.Title == f.Metric })
		if s.Name == f.Scenario && i >= 0 {
			figure := s.Figure(f.Contender, s.Metrics[i])
			return figure.Value, s.Metrics[i].Unit, figure.Known
		}
	}
	return 0, "", false
}
