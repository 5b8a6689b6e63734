//go:build unix

package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/page"
	"github.com/holdfast-go/holdfast/bench/internal/result"
)

func main() {
	if err := program(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func program() error {
	if order := os.Getenv(childEnv); order != "" {
		return child(order, os.Stdin, os.Stdout)
	}
	only := flag.String("only", "", "measure the scenarios whose names contain one of these, separated by commas; none for \"none\"")
	rounds := flag.Int("rounds", 5, "how often each contender is measured")
	span := flag.Duration("span", time.Second, "how long one measurement of throughput takes")
	out := flag.String("out", "../docs/benchmarks.md", "the page; the charts and the figures go into a folder beside it")
	flag.Parse()
	if flag.NArg() > 0 || *rounds < 1 || *span < 10*time.Millisecond {
		return fmt.Errorf("no arguments are taken, at least one round, and at least 10ms for -span")
	}
	folder := strings.TrimSuffix(*out, filepath.Ext(*out))
	file := filepath.Join(folder, "results.json")
	for _, sc := range scenarios() {
		if !chosen(sc.name, *only) {
			continue
		}
		res, err := run(sc, *rounds, *span, os.Stderr)
		if err != nil {
			return err
		}
		if err := keep(file, res); err != nil {
			return err
		}
	}
	all, err := result.Load(file)
	if err != nil {
		return err
	}
	return page.Write(*out, folder, order(all))
}

func chosen(name, only string) bool {
	for part := range strings.SplitSeq(only, ",") {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// keep puts the results of a scenario in the place of those before.
func keep(file string, res *result.Scenario) error {
	all, err := result.Load(file)
	if err != nil {
		return err
	}
	all[res.Name] = res
	return all.Save(file)
}

// order returns the results in the order of the scenarios.
func order(all result.Set) []*result.Scenario {
	var ordered []*result.Scenario
	for _, sc := range scenarios() {
		if res := all[sc.name]; res != nil {
			ordered = append(ordered, res)
		}
	}
	return ordered
}
