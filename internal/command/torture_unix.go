//go:build unix

package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/torture"
	"github.com/holdfast-go/holdfast/internal/torture/testbed"
)

const tortureLong = `Torture finds out whether the locks of a store are locks. Worker processes take,
hold, extend and release them while they are paused and killed and their network
fails. Every step is logged by one clock, and the log is judged at the end: two
holders at one time, tokens that do not rise, updates lost in spite of tokens,
a limit exceeded, waiters forgotten or served out of turn, "held" where nobody
can have held it, a Do that says nothing of the loss of its lock, things left
behind.

Faults of the processes: pause, kill, and pause-first, kill-first of those at
the front of a queue. Of the network, if the URLs name single servers:
partition, lose-reply, reset, slow, cut-notices. With --own, which starts
servers for the trial and ends them afterwards, of the servers, one at a time:
server-pause, server-partition, server-restart, for Redis server-forget, which
is a restart without data, server-flush and server-failover; of most of them,
for etcd: majority-pause, majority-restart, compaction and no-space; and of all
at once: outage, which stops them for longer than a TTL. Those that cannot be
done with the store are left out.
With --shared most workers are readers, and the others writers. With --limit N
most take a random part of N slots of a lock, and the others all of it.
The locks have names of their own; other locks of the store are left alone.

Exit code: 0 if nothing was found; or
    1  a promise was broken: the report shows what was seen, and names the logs
   64  the command line is wrong
   69  the store cannot be reached or started, or the torture could not be
       carried out
  130  interrupted (128+n for another signal n)`

const tortureExample = `  holdfast torture
  holdfast torture --store redis://localhost --for 10m
  holdfast torture --own redlock
  holdfast torture --own postgres --shared
  holdfast torture --faults pause,kill --procs 8 --report ./report`

// tortureWorker is the hidden subcommand that a worker process runs.
const tortureWorker = "torture-worker"

// A tortureCommand is "holdfast torture" with its flags.
type tortureCommand struct {
	*cli
	procs, workers, names int
	shared                bool
	limit                 int
	duration, ttl         time.Duration
	faults, own           string
	seed                  uint64
	reportDir             string
}

func newTorture(c *cli) []*cobra.Command {
	t := &tortureCommand{cli: c}
	cmd := &cobra.Command{
		Use:     "torture",
		Short:   "Find out whether the locks of a store are locks",
		Long:    tortureLong,
		Example: tortureExample,
		Args:    noArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := interruptContext()
			defer stop()
			if t.own != "" && cmd.Flags().Changed("store") {
				return usageError(errors.New("--own is a store of its own"), "without --store")
			}
			return t.finalError(ctx, t.prepareAndRun(ctx))
		},
	}
	f, kinds := cmd.Flags(), testbed.Kinds()
	f.StringVar(&t.own, "own", "", "start a store for the trial, in temporary folders, and\n"+
		"end it afterwards; one of\n"+strings.Join(kinds[:4], " ")+"\n"+strings.Join(kinds[4:], " "))
	f.IntVar(&t.procs, "procs", 6, "worker processes")
	f.IntVar(&t.workers, "workers", 4, "workers in each process")
	f.IntVar(&t.names, "names", 3, "locks that they share")
	f.BoolVar(&t.shared, "shared", false, "readers, who hold the locks together, and writers")
	f.IntVar(&t.limit, "limit", 0, "locks of `N` slots, with holders of one to N of them\n"+
		"(with --shared instead of most writers)")
	durationVar(f, &t.duration, "for", time.Minute, "how long")
	durationVar(f, &t.ttl, "ttl", 2*time.Second, "TTL of the locks, at least 100ms: the shorter, the more\n"+
		"often they are lost")
	f.StringVar(&t.faults, "faults", "all", "faults with commas between, all or none")
	f.Uint64Var(&t.seed, "seed", 0, "seed of the choices made (default another each time)")
	f.StringVar(&t.reportDir, "report", "", "keep the logs and the report in this `DIR`")
	f.BoolVar(&t.json, "json", false, "print the report as JSON")
	worker := &cobra.Command{
		Use:    tortureWorker,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := torture.Work(os.Stdin, openStores, testbed.OpenForeign); err != nil {
				return &exitError{exitUnavailable, err, ""}
			}
			return nil
		},
	}
	return []*cobra.Command{cmd, worker}
}

func openStores(ctx context.Context, urls []string, config *holdfast.Config) (*holdfast.Client, error) {
	return holdfast.Open(ctx, (&stores{urls: urls}).URL(), config)
}

func (t *tortureCommand) prepareAndRun(ctx context.Context) (err error) {
	if err := t.checkFlags(); err != nil {
		return err
	}
	if t.own == "etcd" {
		t.store.urls = []string{"etcd:"}
	}
	if err := t.store.checkURLs(); err != nil && (t.own == "" || t.own == "etcd") {
		return err
	}
	place := &testbed.Testbed{Stores: t.store.urls}
	if t.own != "" {
		if place, err = testbed.Start(t.own, t.ttl); err != nil {
			return &exitError{exitUnavailable, err, ""}
		}
	}
	defer func() {
		if closeErr := place.Close(); err == nil && closeErr != nil {
			err = &exitError{exitUnavailable, closeErr, ""}
		}
	}()
	o, err := t.tortureOptions(ctx, place)
	if err != nil {
		return err
	}
	return t.runTorture(ctx, o)
}

func (t *tortureCommand) runTorture(ctx context.Context, o *torture.Options) error {
	dir, keep, err := t.reportFolder()
	if err != nil {
		return &exitError{exitOutput, err, "--report with another folder"}
	}
	o.Dir = dir
	report, err := torture.Run(ctx, *o)
	t.eraseProgress()
	if err != nil {
		if !keep {
			_ = os.RemoveAll(dir) // it shows nothing
		}
		return exitErrorFor(err)
	}
	if err := t.finishReport(report, dir, keep); err != nil {
		return &exitError{exitOutput, err, ""}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case report.Failed():
		return &exitError{code: exitFound}
	}
	return nil
}

// finishReport prints the report, and keeps the logs if they are wanted or needed.
func (t *tortureCommand) finishReport(report *torture.Report, dir string, keep bool) error {
	if !keep && !report.Failed() {
		report.Picture = "" // it goes with the folder
		return errors.Join(os.RemoveAll(dir), t.printReport(report))
	}
	if err := errors.Join(writeReport(report, dir), t.printReport(report)); err != nil {
		return err
	}
	t.printNotice("the logs are in %s", dir)
	return nil
}

// progress returns a function that shows the progress on a terminal, nil without a terminal.
func (t *tortureCommand) progress() func(time.Duration, int) {
	if !t.onTerminal() {
		return nil
	}
	return func(elapsed time.Duration, faults int) {
		t.eraseProgress()
		_, _ = fmt.Fprintf(os.Stderr, "%v of %v, %d faults ", elapsed.Round(time.Second), t.duration, faults)
	}
}

// writeReport writes the report beside the logs, for people and for programs.
func writeReport(report *torture.Report, dir string) error {
	text, err := os.Create(filepath.Join(dir, "report.txt"))
	if err != nil {
		return err
	}
	err = errors.Join(report.Write(text), text.Close())
	data, jsonErr := json.MarshalIndent(report, "", "  ")
	return errors.Join(err, jsonErr, os.WriteFile(filepath.Join(dir, "report.json"), append(data, '\n'), 0o644))
}

func (t *tortureCommand) printReport(report *torture.Report) error {
	if !t.json {
		return report.Write(os.Stdout)
	}
	encoder := json.NewEncoder(os.Stdout)
	return encoder.Encode(report)
}

// longHolds is how many in a hundred holds last up to three TTLs: enough to coincide with
// faults, and few enough to leave the locks to other workers.
const longHolds = 2

// checkFlags refuses flags that make no sense.
func (t *tortureCommand) checkFlags() error {
	if t.procs < 1 || t.workers < 1 || t.names < 1 {
		return usageError(errors.New("--procs, --workers and --names are at least 1"), "holdfast torture --help")
	}
	if t.limit < 0 || t.limit > driver.MaxLimit {
		return usageError(fmt.Errorf("--limit is from 0 to %d", driver.MaxLimit), "--limit 3")
	}
	if t.ttl < 100*time.Millisecond || t.duration <= 0 {
		return usageError(errors.New("--ttl is at least 100ms, and --for above zero"), "--ttl 2s --for 30s")
	}
	if t.own != "" && !slices.Contains(testbed.Kinds(), t.own) {
		return usageError(fmt.Errorf("--own cannot start %q", t.own), "one of: "+strings.Join(testbed.Kinds(), ", "))
	}
	if _, err := t.parseFaults(); err != nil {
		return usageError(err, "some of: "+fmt.Sprint(torture.Faults))
	}
	return nil
}

func (t *tortureCommand) parseFaults() ([]torture.Fault, error) {
	if t.faults == "all" {
		return torture.Faults, nil
	}
	return torture.ParseFaults(t.faults)
}

// tortureOptions derives the options from the flags.
func (t *tortureCommand) tortureOptions(ctx context.Context, place *testbed.Testbed) (*torture.Options, error) {
	faults, err := t.parseFaults()
	if err != nil {
		return nil, err
	}
	if t.seed == 0 {
		t.seed = rand.Uint64()
	}
	client, err := openStores(ctx, place.Stores, nil)
	if err != nil {
		return nil, exitErrorFor(err)
	}
	defer client.Close() // it holds nothing
	if client.Guarantees().Scope == driver.ScopeProcess {
		t.procs = 1 // the locks of another process are other locks
	}
	self, err := os.Executable()
	if err != nil {
		return nil, &exitError{exitUnavailable, err, ""}
	}
	return &torture.Options{
		Stores: place.Stores, Open: openStores,
		Foreign: t.own != "",
		Servers: place.Servers, Leader: place.Leader, Recovery: place.Recovery,
		Setup: place.Setup, Program: "holdfast " + readBuildInfo().Version,
		Worker: func() *exec.Cmd { return exec.Command(self, tortureWorker) },
		Procs:  t.procs, Workers: t.workers, Names: t.names, Shared: t.shared, Limit: t.limit,
		TTL: t.ttl, Long: longHolds, For: t.duration, Faults: faults, Seed: t.seed,
		Progress: t.progress(),
	}, nil
}

// reportFolder returns the folder of the logs, and whether they stay there.
func (t *tortureCommand) reportFolder() (string, bool, error) {
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
