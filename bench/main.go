//go:build unix

package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/lockers"
	"github.com/holdfast-go/holdfast/bench/internal/page"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/internal/measure"
)

func main() {
	if err := benchMain(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func benchMain() error {
	if os.Getenv(workerEnv) != "" {
		return measure.Serve(os.Stdin, os.Stdout, openInWorker)
	}
	if name := os.Getenv(candidateEnv); name != "" {
		return standInElection(name, os.Args[1:])
	}
	only := flag.String("only", "", "measure the scenarios whose names contain one of these, separated by commas; none for \"none\"")
	rounds := flag.Int("rounds", 5, "how often each contender is measured")
	span := flag.Duration("span", time.Second, "how long one measurement of throughput takes")
	out := flag.String("out", "..", "the folder with docs/benchmarks.md and bench/RESULTS.md")
	flag.Parse()
	if flag.NArg() > 0 || *rounds < 1 || *span < 10*time.Millisecond {
		return fmt.Errorf("no arguments are taken, at least one round, and at least 10ms for -span")
	}
	file := filepath.Join(*out, "bench", "results", "results.json")
	all, err := result.Load(file)
	if err != nil {
		return err
	}
	for _, sc := range scenarios() {
		if !isSelected(sc.name, *only) {
			continue
		}
		if !sc.placement.supported() {
			fmt.Fprintln(os.Stderr, sc.name+": processes cannot be pinned here, or there are too few cores")
			continue
		}
		if all[sc.name], err = runScenario(sc, *rounds, *span, os.Stderr); err != nil {
			return err
		}
		if err := all.Save(file); err != nil {
			return err
		}
	}
	ordered := orderResults(all)
	if err := page.WriteResults(filepath.Join(*out, "bench", "RESULTS.md"), ordered); err != nil {
		return err
	}
	return page.WriteAnswers(filepath.Join(*out, "docs", "benchmarks.md"), questions, ordered)
}

func isSelected(name, only string) bool {
	return slices.ContainsFunc(strings.Split(only, ","), func(part string) bool { return strings.Contains(name, part) })
}

// orderResults returns the results in the order of the scenarios. The Holdfast that a contender
// is compared with is that of today.
func orderResults(all result.Set) []*result.Scenario {
	var ordered []*result.Scenario
	for _, sc := range scenarios() {
		res := all[sc.name]
		if res == nil {
			continue
		}
		for i := range res.Contenders {
			own := slices.IndexFunc(sc.contenders, func(c lockers.Contender) bool { return c.Name == res.Contenders[i].Name })
			res.Contenders[i].Against = "" // One that is no more is compared with the first.
			if own >= 0 {
				res.Contenders[i].Against = sc.contenders[own].Against
			}
		}
		ordered = append(ordered, res)
	}
	return ordered
}
