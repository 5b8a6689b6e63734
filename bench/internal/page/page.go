//go:build unix

// Package page writes the results as pages of Markdown with charts.
package page

import (
	"cmp"
	"embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/internal/measure"
)

//go:embed *.md.tmpl
var files embed.FS

// execute writes a page from a template.
func execute(path, name string, data any) error {
	t, err := template.New(name).Funcs(template.FuncMap{
		"table": tableOf, "stuck": stuckTexts, "setups": setups, "origins": origins, "machines": machines,
	}).ParseFS(files, name)
	if err != nil {
		return err
	}
	var b strings.Builder
	if err := t.Execute(&b, data); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// WriteResults writes the page with the tables of all scenarios to path, and their charts into
// the folder "results" beside it.
func WriteResults(path string, all []*result.Scenario) error {
	for _, s := range all {
		var panels []measure.Panel
		for _, m := range s.Metrics {
			if m.Chart {
				panels = append(panels, panelOf(s, m, m.Title))
			}
		}
		chart := measure.Chart(s.Group+": "+s.Title, panels)
		file := filepath.Join(filepath.Dir(path), "results", s.Name+".svg")
		if err := os.WriteFile(file, []byte(chart), 0o644); err != nil {
			return err
		}
	}
	return execute(path, "results.md.tmpl", all)
}

// A name of a contender of one size, as "Holdfast, 1,000 held".
var sizedName = regexp.MustCompile(`^(.+), ([0-9,]+) (\w+)$`)

// panelOf returns a bar for each contender, the best first. The sizes of one contender are
// together, the least first, at the place of the best of them.
func panelOf(s *result.Scenario, m result.Metric, title string) measure.Panel {
	hint := "more"
	if m.Lower {
		hint = "less"
	}
	p := measure.Panel{
		Title: title, Note: "– " + hint + " is better",
	}
	for _, c := range s.Contenders {
		f := s.Figure(c.Name, m)
		if !f.Known {
			continue
		}
		text := formatNumber(f.Value, m.Unit)
		if r := s.Ratio(c, m); r > 0 {
			text += " (" + formatRatio(r) + ")"
		}
		p.Bars = append(p.Bars, measure.Bar{Label: c.Name, Value: f.Value, Text: text, Class: c.Role})
	}
	slices.SortStableFunc(p.Bars, func(a, b measure.Bar) int {
		if m.Lower {
			a, b = b, a
		}
		return cmp.Compare(b.Value, a.Value)
	})
	sizeOf := func(bar measure.Bar) (contender string, size int) {
		parts := sizedName.FindStringSubmatch(bar.Label)
		if parts == nil {
			return bar.Label, 0
		}
		size, _ = strconv.Atoi(strings.ReplaceAll(parts[2], ",", "")) // It has digits alone.
		return parts[1] + ", " + parts[3], size
	}
	places := map[string]int{} // of contenders
	for i, bar := range p.Bars {
		contender, _ := sizeOf(bar)
		if _, ok := places[contender]; !ok {
			places[contender] = i
		}
	}
	slices.SortStableFunc(p.Bars, func(a, b measure.Bar) int {
		contenderA, sizeA := sizeOf(a)
		contenderB, sizeB := sizeOf(b)
		return cmp.Or(cmp.Compare(places[contenderA], places[contenderB]), cmp.Compare(sizeA, sizeB))
	})
	return p
}

// tableOf returns the figures of a scenario: a row for each contender, and beside each charted
// figure, how many times better Holdfast is.
func tableOf(s *result.Scenario) string {
	head := []string{""}
	for _, m := range s.Metrics {
		head = append(head, m.Title)
		if m.Chart {
			head = append(head, "Holdfast is better")
		}
	}
	rows := [][]string{head}
	for _, c := range s.Contenders {
		cells := []string{contenderCell(c)}
		for _, m := range s.Metrics {
			cells = append(cells, withSpread(s.Figure(c.Name, m), m))
			if m.Chart {
				cells = append(cells, ratioCell(c, s.Ratio(c, m)))
			}
		}
		rows = append(rows, cells)
	}
	return formatTable(rows)
}

// formatTable returns a table of Markdown. The first row is its head. The columns after the
// first are aligned on the right.
func formatTable(rows [][]string) string {
	var b strings.Builder
	for i, cells := range rows {
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
		if i == 0 {
			b.WriteString("|---|" + strings.Repeat("--:|", len(cells)-1) + "\n")
		}
	}
	return b.String()
}

func contenderCell(c result.Contender) string {
	if c.Role == "ours" {
		return "**" + c.Name + "**"
	}
	return c.Name
}

// stuckTexts states which contenders did not finish.
func stuckTexts(s *result.Scenario) []string {
	var all []string
	for _, c := range s.Contenders {
		if n := s.Stuck(c.Name); n > 0 {
			all = append(all, fmt.Sprintf("%s did not come to an end in %d of %d rounds: it waited for locks that were free.",
				c.Name, n, s.Rounds))
		}
	}
	return all
}

// setups describes how each contender was set up.
func setups(all []*result.Scenario) []string {
	var lines []string
	seen := map[string]bool{}
	for _, s := range all {
		for _, c := range s.Contenders {
			if !seen[c.Name] {
				seen[c.Name] = true
				lines = append(lines, fmt.Sprintf("**%s**: %s.", c.Name, c.Settings))
			}
		}
	}
	return lines
}

// origins is a table of when and from which source each scenario was measured.
func origins(all []*result.Scenario) string {
	rows := [][]string{{"Scenario", "Date (UTC)", "Rounds", "Load average", "CPU time stolen", "Commit"}}
	for _, s := range all {
		rows = append(rows, []string{
			s.Name, s.Date.Format("2006-01-02 15:04"), fmt.Sprint(s.Rounds),
			fmt.Sprintf("%.1f–%.1f", slices.Min(s.Load), slices.Max(s.Load)),
			fmt.Sprintf("%.0f %%", s.Stolen*100), s.Machine.Commit,
		})
	}
	return formatTable(rows)
}

// machines describes the machines and the versions, each once.
func machines(all []*result.Scenario) []string {
	var lines []string
	for _, s := range all {
		m := s.Machine
		var versions []string
		for _, name := range slices.Sorted(maps.Keys(m.Versions)) {
			versions = append(versions, name+" "+m.Versions[name])
		}
		line := fmt.Sprintf("%d CPUs (%s), %s; %s", m.CPUs, m.CPU, m.Kernel, strings.Join(versions, ", "))
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}
