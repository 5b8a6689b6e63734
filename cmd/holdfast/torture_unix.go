//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/torture"
)

const tortureLong = `Torture finds out whether the locks of a store are locks. Worker processes take,
hold, extend and release them while they are paused and killed and their network
fails. Every step is logged by one clock, and the log is judged at the end: two
holders at one time, tokens that do not rise, updates lost in spite of tokens,
waiters forgotten, things left behind.

Faults of the processes: pause, kill. Of the network, if the URLs name single
servers: partition, lose-reply, reset, slow. Those that cannot be done with the
store are left out. The locks have names of their own; other locks of the store
are left alone.

Exit code: 0 if nothing was found; or
    1  a promise was broken: it is told what was seen, and where the logs are
   64  the command line is wrong
   69  the store cannot be reached, or the torture could not be carried out
  130  interrupted (128+n for another signal n)`

const tortureExample = `  holdfast torture
  holdfast torture --store redis://localhost --for 10m
  holdfast torture --faults pause,kill --procs 8 --report ./report`

// tortureWorker is the hidden subcommand that a worker process runs.
const tortureWorker = "torture-worker"

// A tortureCommand is "holdfast torture" with its flags.
type tortureCommand struct {
	*cli
	procs, workers, names int
	duration, ttl         time.Duration
	faults                string
	seed                  uint64
	reportDir             string
	json                  bool
}

func newTorture(c *cli) []*cobra.Command {
	t := &tortureCommand{cli: c}
	cmd := &cobra.Command{
		Use:     "torture",
		Short:   "Find out whether the locks of a store are locks",
		Long:    tortureLong,
		Example: tortureExample,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			ctx, stop := interruptible()
			defer stop()
			return t.ended(ctx, t.run(ctx))
		},
	}
	f := cmd.Flags()
	f.IntVar(&t.procs, "procs", 6, "worker processes")
	f.IntVar(&t.workers, "workers", 4, "workers in each process")
	f.IntVar(&t.names, "names", 3, "locks that they share")
	f.DurationVar(&t.duration, "for", time.Minute, "how long")
	f.DurationVar(&t.ttl, "ttl", 2*time.Second, "TTL of the locks: the shorter, the more often they are lost")
	f.StringVar(&t.faults, "faults", "all", "faults with commas between, all or none")
	f.Uint64Var(&t.seed, "seed", 0, "seed of the choices made (default another each time)")
	f.StringVar(&t.reportDir, "report", "", "keep the logs and the report in this folder")
	f.BoolVar(&t.json, "json", false, "print the report as JSON")
	worker := &cobra.Command{
		Use:    tortureWorker,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := torture.Work(os.Stdin, openStores); err != nil {
				return &exit{exitUnavailable, err, ""}
			}
			return nil
		},
	}
	return []*cobra.Command{cmd, worker}
}

func openStores(ctx context.Context, urls []string, config *holdfast.Config) (*holdfast.Client, error) {
	return holdfast.Open(ctx, (&stores{urls: urls}).URL(), config)
}

func (t *tortureCommand) run(ctx context.Context) error {
	o, err := t.options(ctx)
	if err != nil {
		return err
	}
	dir, keep, err := t.folder()
	if err != nil {
		return &exit{exitOutput, err, "--report with another folder"}
	}
	o.Dir = dir
	report, err := torture.Run(ctx, *o)
	t.erase()
	if err != nil {
		return failure(err)
	}
	if keep || len(report.Violations) > 0 {
		keep = true
		err = writeReport(report, dir)
	} else {
		err = os.RemoveAll(dir)
	}
	if err == nil {
		err = t.print(report)
	}
	if err != nil {
		return &exit{exitOutput, err, ""}
	}
	if keep {
		t.say("the logs are in %s", dir)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if len(report.Violations) > 0 {
		return &exit{code: exitFound}
	}
	return nil
}

// longHolds is how many in a hundred holds last about a TTL: enough to meet with
// faults, and few enough to leave the locks to others.
const longHolds = 2

// exitFound is the exit code of a torture that has found something.
const exitFound = 1

// options puts together what the flags say.
func (t *tortureCommand) options(ctx context.Context) (*torture.Options, error) {
	if t.procs < 1 || t.workers < 1 || t.names < 1 {
		return nil, usage(errors.New("--procs, --workers and --names are at least 1"), "")
	}
	if t.ttl < 100*time.Millisecond || t.duration <= 0 {
		return nil, usage(errors.New("--ttl is at least 100ms, and --for above zero"), "")
	}
	faults := torture.Faults
	if t.faults != "all" {
		var err error
		if faults, err = torture.ParseFaults(t.faults); err != nil {
			return nil, usage(err, "some of: "+fmt.Sprint(torture.Faults))
		}
	}
	if t.seed == 0 {
		t.seed = rand.Uint64()
	}
	client, err := openStores(ctx, t.store.urls, nil)
	if err != nil {
		return nil, failure(err)
	}
	defer client.Close() // it holds nothing
	if client.Guarantees().Scope == driver.ScopeProcess {
		t.procs = 1 // the locks of another process are other locks
	}
	self, err := os.Executable()
	if err != nil {
		return nil, &exit{exitUnavailable, err, ""}
	}
	return &torture.Options{
		Stores: t.store.urls, Open: openStores,
		Worker: func() *exec.Cmd { return exec.Command(self, tortureWorker) },
		Procs:  t.procs, Workers: t.workers, Names: t.names,
		TTL: t.ttl, Long: longHolds, For: t.duration, Faults: faults, Seed: t.seed,
		Progress: t.progress(),
	}, nil
}

// progress tells on a terminal how far it has got.
func (t *tortureCommand) progress() func(time.Duration, int) {
	if !t.onTerminal() {
		return nil
	}
	return func(elapsed time.Duration, faults int) {
		t.erase()
		_, _ = fmt.Fprintf(os.Stderr, "%v of %v, %d faults ", elapsed.Round(time.Second), t.duration, faults)
	}
}

// folder returns where the logs go, and whether they are to stay there.
func (t *tortureCommand) folder() (string, bool, error) {
	if t.reportDir == "" {
		dir, err := os.MkdirTemp("", "holdfast-torture-")
		return dir, false, err
	}
	if err := os.MkdirAll(t.reportDir, 0o755); err != nil {
		return "", false, err
	}
	dir, err := os.MkdirTemp(t.reportDir, time.Now().Format("20060102-150405-"))
	return dir, true, err
}

// writeReport puts the report beside the logs, for people and for programs.
func writeReport(report *torture.Report, dir string) error {
	text, err := os.Create(filepath.Join(dir, "report.txt"))
	if err != nil {
		return err
	}
	err = errors.Join(report.Write(text), text.Close())
	data, jsonErr := json.MarshalIndent(report, "", "  ")
	return errors.Join(err, jsonErr, os.WriteFile(filepath.Join(dir, "report.json"), append(data, '\n'), 0o644))
}

func (t *tortureCommand) print(report *torture.Report) error {
	if !t.json {
		return report.Write(os.Stdout)
	}
	encoder := json.NewEncoder(os.Stdout)
	return encoder.Encode(report)
}
