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
}

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
	Table, Sources string
}

// WriteAnswers writes the short page to path, and its charts into the folder of the same name.
// Scenarios that were not measured are left out, and so are columns without any.
func WriteAnswers(path string, questions []Question, all []*result.Scenario) error {
	folder := strings.TrimSuffix(path, ".md")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	var answers []answer
	for _, q := range questions {
		columns := findColumns(q, all)
		var panels []measure.Panel
		var sources []string
		for i, column := range columns {
			for _, m := range column.measured {
				if i == 0 {
					panels = append(panels, panelOf(m.Scenario, m.metric, m.Group+": "+m.Title))
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
		answers = append(answers, answer{q, answerTable(columns), strings.Join(sources, ", ")})
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
	m.metric.Unit, m.metric.Lower = result.Micros, true
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
			if ratio = m.Ratio(c, m.metric); ratio == 0 || c.Role == "ours" || column.NoRatio {
				return text, 0
			}
			return text + " (" + ratioCell(ratio) + ")", ratio
		}
	}
	return "", 0
}
