//go:build unix

// Command holdfast-torture finds out whether the locks of a store are locks. Worker processes take,
// hold, extend and release them while they are paused and killed, and their network and their
// servers fail. Every step is logged by one clock, and package torture judges the log.
//
// Exit code: 0 if nothing was found, 1 if a promise was broken, 2 if the command line is wrong, 69
// if the torture could not be carried out, 130 if it was interrupted.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	_ "github.com/holdfast-go/holdfast/etcdstore"
	_ "github.com/holdfast-go/holdfast/filestore"
	_ "github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/quorumstore"
	_ "github.com/holdfast-go/holdfast/redisstore"
	_ "github.com/holdfast-go/holdfast/s3store"
	"github.com/holdfast-go/holdfast/tools/internal/torture"
	"github.com/holdfast-go/holdfast/tools/internal/torture/testbed"
)

// Exit codes.
const (
	exitFound       = 1
	exitUsage       = 2
	exitUnavailable = 69
	exitInterrupted = 130
)

// workerEnv makes this program a worker process.
const workerEnv = "HOLDFAST_TORTURE_WORKER"

// longHolds is how many in a hundred holds last up to three TTLs: enough to coincide with faults,
// and few enough to leave the locks to other workers.
const longHolds = 2

func main() {
	if os.Getenv(workerEnv) != "" {
		if err := torture.Work(os.Stdin, open, testbed.OpenForeign); err != nil {
			fail(exitUnavailable, err)
		}
		return
	}
	o := torture.Options{Procs: 6, Workers: 4, Names: 3, Long: longHolds, Faults: torture.Faults}
	var stores []string
	flag.Func("store", "`URL` of a store; given several times, of the nodes of a quorum", func(url string) error {
		stores = append(stores, url)
		return nil
	})
	own := flag.String("own", "", "start the servers of a store for the trial, and end them afterwards; one of\n"+strings.Join(testbed.Kinds(), " "))
	flag.BoolVar(&o.Shared, "shared", false, "readers, which hold the locks together, and writers")
	flag.IntVar(&o.Limit, "limit", 0, "locks of up to `N` holders at a time, and writers")
	flag.DurationVar(&o.For, "for", time.Minute, "how long")
	flag.DurationVar(&o.TTL, "ttl", 2*time.Second, "TTL of the locks, at least 100ms")
	flag.Uint64Var(&o.Seed, "seed", rand.Uint64(), "seed of the choices made")
	reports := flag.String("report", "", "keep the logs and the report in this `DIR`")
	asJSON := flag.Bool("json", false, "print the report as JSON")
	flag.Parse()

	switch {
	case flag.NArg() > 0 || (*own == "") == (len(stores) == 0):
		fail(exitUsage, errors.New("one of -store and -own is needed, and no argument"))
	case o.TTL < 100*time.Millisecond || o.For <= 0 || o.Limit < 0 || o.Limit >= driver.Shared:
		fail(exitUsage, errors.New("-ttl is at least 100ms, -for above 0, and -limit not below 0"))
	}
	os.Exit(run(o, stores, *own, *reports, *asJSON))
}

// run carries out a torture, and returns the exit code.
func run(o torture.Options, stores []string, own, reports string, asJSON bool) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	bed := &testbed.Testbed{Stores: stores}
	var err error
	if own != "" {
		if bed, err = testbed.Start(own, o.TTL); err != nil {
			fail(exitUnavailable, err)
		}
	}
	report, err := tortureStore(ctx, o, bed, own != "", reports, asJSON)
	if err = errors.Join(err, bed.Close()); err != nil {
		fmt.Fprintln(os.Stderr, "holdfast-torture:", err)
		return exitUnavailable
	}
	switch {
	case ctx.Err() != nil:
		return exitInterrupted
	case report.Failed():
		return exitFound
	}
	return 0
}

func tortureStore(ctx context.Context, o torture.Options, bed *testbed.Testbed, own bool, reports string, asJSON bool) (*torture.Report, error) {
	client, err := open(ctx, bed.Stores, nil)
	if err != nil {
		return nil, err
	}
	if client.Guarantees().InProcess {
		o.Procs = 1 // the locks of another process are other locks
	}
	if err := client.Close(); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if reports != "" {
		if err := os.MkdirAll(reports, 0o755); err != nil {
			return nil, err
		}
	}
	if o.Dir, err = os.MkdirTemp(reports, "holdfast-torture-"); err != nil {
		return nil, err
	}
	o.Stores, o.Open, o.Foreign = bed.Stores, open, own
	o.Servers, o.Leader, o.Recovery = bed.Servers, bed.Leader, bed.Recovery
	o.Worker = func() *exec.Cmd {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), workerEnv+"=1")
		return cmd
	}
	report, err := torture.Run(ctx, o)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(o.Dir))
	}
	if reports == "" && !report.Failed() {
		err = os.RemoveAll(o.Dir)
	} else {
		err = os.WriteFile(filepath.Join(o.Dir, "report.txt"), []byte(report.String()), 0o644)
		fmt.Fprintln(os.Stderr, "the logs are in", o.Dir)
	}
	if asJSON {
		return report, errors.Join(err, json.NewEncoder(os.Stdout).Encode(report))
	}
	_, printErr := fmt.Print(report)
	return report, errors.Join(err, printErr)
}

func open(ctx context.Context, urls []string, config *holdfast.Config) (*holdfast.Client, error) {
	url := urls[0]
	if len(urls) > 1 {
		url = quorumstore.URL(urls...)
	}
	return holdfast.Open(ctx, url, config)
}

func fail(code int, err error) {
	fmt.Fprintln(os.Stderr, "holdfast-torture:", err)
	os.Exit(code)
}
