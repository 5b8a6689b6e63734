//go:build unix

// Command holdfast-bench measures Holdfast, other libraries and the plain commands on the same
// servers, which it starts and ends, and prints tables of ratios. See docs/benchmarks.md.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/tools/internal/bench"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "holdfast-bench:", err)
		os.Exit(1)
	}
}

func run() error {
	only := flag.String("only", "", "measure the scenarios whose names begin with this `TEXT`; they are\n"+names())
	rounds := flag.Int("rounds", 5, "how often each contender is measured")
	span := flag.Duration("span", time.Second, "how long one measurement of a rate takes")
	flag.Parse()
	if flag.NArg() > 0 || *rounds < 1 || *span < 10*time.Millisecond {
		return fmt.Errorf("no argument, at least one round, and at least 10ms for -span")
	}
	for _, sc := range bench.Scenarios() {
		if strings.HasPrefix(sc.Name, *only) {
			if err := sc.Run(os.Stdout, *rounds, *span); err != nil {
				return err
			}
		}
	}
	return nil
}

func names() string {
	var all []string
	for _, sc := range bench.Scenarios() {
		all = append(all, sc.Name)
	}
	return strings.Join(all, " ")
}
