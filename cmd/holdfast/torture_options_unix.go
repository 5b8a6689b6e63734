//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/torture"
	"github.com/holdfast-go/holdfast/internal/torture/testbed"
)

// longHolds is how many in a hundred holds last up to three TTLs: enough to coincide with
// faults, and few enough to leave the locks to other workers.
const longHolds = 2

// checkFlags refuses flags that make no sense.
func (t *tortureCommand) checkFlags() error {
	if t.procs < 1 || t.workers < 1 || t.names < 1 {
		return usageError(errors.New("--procs, --workers and --names are at least 1"), "")
	}
	if t.ttl < 100*time.Millisecond || t.duration <= 0 {
		return usageError(errors.New("--ttl is at least 100ms, and --for above zero"), "")
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
		Servers: place.Servers, Recovery: place.Recovery,
		Setup: place.Setup, Program: "holdfast " + readBuildInfo().Version,
		Worker: func() *exec.Cmd { return exec.Command(self, tortureWorker) },
		Procs:  t.procs, Workers: t.workers, Names: t.names,
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
