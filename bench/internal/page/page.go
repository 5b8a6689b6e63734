// Package page writes what was measured as a page of Markdown with charts.
package page

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/bench/internal/result"
)

// Write writes the page and, into the folder, its charts.
func Write(path, folder string, all []*result.Scenario) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(head)
	losses(&b, all)
	group := ""
	for _, s := range all {
		if s.Group != group {
			group = s.Group
			fmt.Fprintf(&b, "## %s\n\n", group)
		}
		if err := section(&b, s, folder); err != nil {
			return err
		}
	}
	contenders(&b, all)
	origin(&b, all)
	return os.WriteFile(path, []byte(strings.TrimRight(b.String(), "\n")+"\n"), 0o644)
}

const head = `# Benchmarks

Holdfast beside other lock libraries and beside the plain commands, which are the limit of what any library can do. This
page is written by a program; to write it anew, with servers that it starts itself:

` + "```\nmake bench        # or a part of it: cd bench && go run . -only redis-held\n```" + `

All contenders of a table were measured on the same servers, in turns: each round measures every contender once and
begins with another one. Figures are medians of the rounds, with the least and the greatest in brackets; quantiles are
of all single measurements. "Holdfast is better" is how many times: more than 1× is good for Holdfast, less than 1× is
in bold. Where rounds can be compared it is the median of the ratios within a round. Client and servers share the
machine, so that throughput is that of both.

`

// section writes one scenario and draws its chart.
func section(b *strings.Builder, s *result.Scenario, folder string) error {
	name := s.Name + ".svg"
	if err := os.WriteFile(filepath.Join(folder, name), []byte(chart(s)), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(b, "### %s\n\n`%s`: %s\n\n", s.Title, s.Name, s.About)
	fmt.Fprintf(b, "![Bars of the figures below](%s/%s)\n\n", filepath.Base(folder), name)
	table(b, s)
	return nil
}

// losses lists where Holdfast is not the best: first in what is drawn, which is
// what a scenario is about, then in what that costs.
func losses(b *strings.Builder, all []*result.Scenario) {
	const intro = "## Where Holdfast loses\n\nEvery figure in which something else is better by more than 3 %, with how many times as " +
		"good Holdfast is. First what the scenarios are about:\n\n"
	b.WriteString(intro)
	lossTable(b, all, true)
	b.WriteString("\nThen what it costs:\n\n")
	lossTable(b, all, false)
	b.WriteString(why)
}

// why says where the time goes, and what was tried.
const why = `
### Why, and what was tried

Redis, uncontended. A grant sets the lock and, once for a batch, the counter of tokens; it reads the server's clock and
writes token, begin, holder and metadata into the lock's value. PSETEX, PXAT, and one MGET and DEL for a batch of releases
were tried in the scripts: none saved more than a few per cent. Calls gather in batches, one script for each, on two lanes;
more lanes made smaller batches and were no faster. A goroutine that is alone pays for a second one with each acquisition,
since a context that is cancelled must be obeyed at once: the others return when the server answers.
The raw pair with a token shows what the fencing token costs by itself, since it must be made in one step with the grant.

On one name. Every release wakes the one who waits longest in each process, so that all get their share. Those who are
faster hand the lock to whoever polls just then, mostly the one who had it before: see the fairness.

A majority of five. A pair is ten scripts on five servers, which share two cores with the client here. A server also remembers
the tokens that are ahead of its counter, in a sorted set.

PostgreSQL. A wait for an advisory lock of go-pglock is a statement that the server answers when the lock is free, on a
connection of its own for each waiter. Holdfast keeps one connection for all locks, and wakes its waiters by a
notification, which is a statement more after the release; they then ask for the lock.

`

func lossTable(b *strings.Builder, all []*result.Scenario, charted bool) {
	row(b, []string{"Scenario", "Figure", "What is better"})
	b.WriteString("|---|---|---|\n")
	for _, s := range all {
		for _, m := range s.Metrics {
			if better := lost(s, m); m.Chart == charted && len(better) > 0 {
				row(b, []string{s.Name, m.Title, strings.Join(better, ", ")})
			}
		}
	}
}

// lost names the others that are better in a figure.
func lost(s *result.Scenario, m result.Metric) []string {
	const tie = 0.97
	var better []string
	for _, c := range s.Contenders {
		if r := Ratio(s, m, Ours(s), c.Name); c.Role != "ours" && r > 0 && r < tie {
			better = append(better, c.Name+" ("+times(r)+")")
		}
	}
	return better
}

// contenders says how each was set up.
func contenders(b *strings.Builder, all []*result.Scenario) {
	b.WriteString("## How each was set up\n\nThe TTL is 10 s for all, except where a scenario says otherwise. go-redis has PoolSize 64 " +
		"and ContextTimeoutEnabled.\n\n")
	seen := map[string]bool{}
	for _, s := range all {
		for _, c := range s.Contenders {
			if !seen[c.Name] {
				seen[c.Name] = true
				fmt.Fprintf(b, "- **%s**: %s.\n", c.Name, c.Settings)
			}
		}
	}
	b.WriteString("\n")
}

// origin says when, on what and with what versions all was measured.
func origin(b *strings.Builder, all []*result.Scenario) {
	b.WriteString("## When, and on what\n\n")
	row(b, []string{"Scenario", "Date (UTC)", "Rounds", "Load average", "CPU time stolen", "Commit"})
	b.WriteString("|---|---|--:|--:|--:|---|\n")
	var machines []string
	for _, s := range all {
		load := fmt.Sprintf("%.1f–%.1f", slices.Min(s.Load), slices.Max(s.Load))
		row(b, []string{s.Name, s.Date.Format("2006-01-02 15:04"), fmt.Sprint(s.Rounds), load,
			fmt.Sprintf("%.0f %%", s.Stolen*100), s.Machine.Commit})
		if text := machine(s.Machine); !slices.Contains(machines, text) {
			machines = append(machines, text)
		}
	}
	b.WriteString("\nStolen is what the host of a virtual machine gave to others meanwhile: the higher, the less the absolute " +
		"figures say, and the more the ratios vary.\n\n")
	for _, text := range machines {
		b.WriteString("- " + text + "\n")
	}
}

func machine(m result.Machine) string {
	var versions []string
	for name, version := range m.Versions {
		versions = append(versions, name+" "+version)
	}
	slices.Sort(versions)
	return fmt.Sprintf("%d CPUs (%s), %s; %s", m.CPUs, m.CPU, m.Kernel, strings.Join(versions, ", "))
}
