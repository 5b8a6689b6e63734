//go:build unix

package torture_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/filestore"
	"github.com/holdfast-go/holdfast/internal/torture"
	"github.com/holdfast-go/holdfast/internal/torture/testbed"
	_ "github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/quorumstore"
	_ "github.com/holdfast-go/holdfast/redisstore"
)

// The connections are cut on purpose.
func init() { logging.Disable() }

// TestMain lets the test binary be a worker process.
func TestMain(m *testing.M) {
	if os.Getenv("TORTURE_WORKER") != "" {
		if do := brokenDo[os.Getenv("TORTURE_VARIANT")]; do != nil {
			torture.SetUnderDo(do)
		}
		if err := torture.Work(os.Stdin, open); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func open(ctx context.Context, urls []string, config *holdfast.Config) (*holdfast.Client, error) {
	if variant := os.Getenv("TORTURE_VARIANT"); variant != "" {
		return openBroken(ctx, variant, urls, config)
	}
	if len(urls) > 1 {
		return holdfast.Open(ctx, quorumstore.URL(urls...), config)
	}
	return holdfast.Open(ctx, urls[0], config)
}

// worker returns how to start a worker process, with a broken store if variant
// names one.
func worker(variant string) func() *exec.Cmd {
	return func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "TORTURE_WORKER=1", "TORTURE_VARIANT="+variant, "GORACE=atexit_sleep_ms=0")
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

func run(t *testing.T, o torture.Options) *torture.Report {
	t.Helper()
	report, err := torture.Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := report.Write(&text); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", text.String())
	return report
}

// Every store stands what is done to it: to the processes, the network, and the
// servers.
func TestStoresKeepTheirPromises(t *testing.T) {
	t.Parallel()
	together(t, testbed.Kinds(), func(t *testing.T, kind string) {
		o := ofTestbed(t, kind, time.Second)
		if kind == "memory" {
			o.Procs = 1
		}
		if run(t, o).Failed() {
			t.Error("violations")
		}
	})
}

// together runs a few subtests at a time. They are idle for the most part, so
// that there may be more of them than processors.
func together(t *testing.T, names []string, f func(t *testing.T, name string)) {
	slots := make(chan struct{}, 1)
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
