//go:build unix

package torture_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/etcdstore"
	_ "github.com/holdfast-go/holdfast/filestore"
	_ "github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/quorumstore"
	_ "github.com/holdfast-go/holdfast/redisstore"
	_ "github.com/holdfast-go/holdfast/s3store"
	"github.com/holdfast-go/holdfast/tools/internal/torture"
	"github.com/holdfast-go/holdfast/tools/internal/torture/testbed"
)

// whole has the tests try every store ("make test-all").
var whole = os.Getenv("TEST_WHOLE") != ""

// The connections are cut on purpose.
func init() { logging.Disable() }

// TestMain lets the test binary be a worker process.
func TestMain(m *testing.M) {
	if os.Getenv("TORTURE_WORKER") != "" {
		if err := torture.Work(os.Stdin, open, testbed.OpenForeign); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func open(ctx context.Context, urls []string, config *holdfast.Config) (*holdfast.Client, error) {
	if os.Getenv("TORTURE_BROKEN") != "" {
		return openBroken(ctx, urls, config)
	}
	if len(urls) > 1 {
		return holdfast.Open(ctx, quorumstore.URL(urls...), config)
	}
	return holdfast.Open(ctx, urls[0], config)
}

// worker returns how to start a worker process, with a broken store unless that is "".
func worker(broken string) func() *exec.Cmd {
	return func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "TORTURE_WORKER=1", "TORTURE_BROKEN="+broken, "GORACE=atexit_sleep_ms=0")
		return cmd
	}
}

func options(t *testing.T, stores ...string) torture.Options {
	t.Helper()
	return torture.Options{
		Stores: stores, Open: open, Worker: worker(""),
		Procs: 4, Workers: 3, Names: 2, TTL: time.Second, Long: 5, For: 5 * time.Second,
		Faults: torture.Faults, Seed: uint64(time.Now().UnixNano()),
		Dir: t.TempDir(),
	}
}

// ofTestbed has a store of package testbed.
func ofTestbed(t *testing.T, kind string) torture.Options {
	t.Helper()
	const ttl = time.Second
	place, err := testbed.Start(kind, ttl)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := place.Close(); err != nil {
			t.Error(err)
		}
	})
	o := options(t, place.Stores...)
	o.TTL, o.Foreign, o.Servers, o.Recovery = ttl, true, place.Servers, place.Recovery
	return o
}

func run(t *testing.T, o torture.Options) *torture.Report {
	t.Helper()
	report, err := torture.Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", report)
	return report
}

// Every store stands what is done to it: to the processes, the network, and the servers.
func TestStoresKeepTheirPromises(t *testing.T) {
	t.Parallel()
	kinds := []string{"memory", "file", "redis", "postgres"}
	if whole {
		kinds = testbed.Kinds()
	}
	together(t, kinds, func(t *testing.T, kind string) {
		o := ofTestbed(t, kind)
		if kind == "memory" {
			o.Procs = 1
		}
		if run(t, o).Failed() {
			t.Error("violations")
		}
	})
}

// So do the readers and writers of a store, and the holders of its slots.
func TestStoresShare(t *testing.T) {
	t.Parallel()
	kinds := []string{"memory"}
	if whole {
		kinds = append(kinds, "postgres")
	}
	together(t, kinds, func(t *testing.T, kind string) {
		for _, limit := range []int{0, 10} {
			o := ofTestbed(t, kind)
			if kind == "memory" {
				o.Procs, o.Workers = 1, 12
			} else {
				o.For = 12 * time.Second // On a busy machine servers and processes stand still for half of it.
			}
			o.Names, o.Shared, o.Limit = 1, limit == 0, limit
			o.Faults = slices.DeleteFunc(slices.Clone(o.Faults), func(f torture.Fault) bool {
				return f == torture.Outage || f == torture.ServerPartition || // they last for most of the run
					kind == "memory" && f != torture.Pause // the store ends with its process
			})
			report := run(t, o)
			if report.Failed() {
				t.Errorf("limit %d: violations", limit)
			}
			if report.Together < 2 {
				t.Errorf("limit %d: no two holders at a time", limit)
			}
		}
	})
}

// together runs a few subtests at a time. They are idle for the most part, so that there may be
// more of them than processors.
func together(t *testing.T, names []string, f func(t *testing.T, name string)) {
	slots := make(chan struct{}, 2)
	var group sync.WaitGroup
	for _, name := range names {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			t.Run(name, func(t *testing.T) { f(t, name) })
		})
	}
	group.Wait()
}
