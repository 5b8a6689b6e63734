//go:build unix

package torture_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/filestore"
	_ "github.com/holdfast-go/holdfast/redisstore"

	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/internal/torture"
	"github.com/holdfast-go/holdfast/pgstore"
	"github.com/holdfast-go/holdfast/quorumstore"
)

// TestMain lets the test binary be a worker process.
func TestMain(m *testing.M) {
	if os.Getenv("TORTURE_WORKER") != "" {
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
	length := 5 * time.Second
	if d, err := time.ParseDuration(os.Getenv("HOLDFAST_TORTURE")); err == nil {
		length = d
	}
	return torture.Options{
		Stores: stores, Open: open, Worker: worker(""),
		Procs: 4, Workers: 3, Names: 2, TTL: time.Second, Long: 5, For: length,
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

func TestStoresStandIt(t *testing.T) {
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		if run(t, options(t, "file:"+t.TempDir())).Failed() {
			t.Error("violations")
		}
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		redis := servers.StartRedis(t)
		if run(t, options(t, "redis://"+redis.Addr)).Failed() {
			t.Error("violations")
		}
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		url := servers.StartPostgres(t).URL("postgres")
		client, err := holdfast.Open(context.Background(), url, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if err := client.Store().(*pgstore.Store).Migrate(context.Background()); err != nil {
			t.Fatal(err)
		}
		if run(t, options(t, url)).Failed() {
			t.Error("violations")
		}
	})
	t.Run("advisory", func(t *testing.T) {
		t.Parallel()
		url := servers.StartPostgres(t).URL("postgres")
		if run(t, options(t, strings.Replace(url, "postgres:", "postgres+advisory:", 1))).Failed() {
			t.Error("violations")
		}
	})
	t.Run("quorum", func(t *testing.T) {
		t.Parallel()
		var urls []string
		for _, node := range servers.StartRedises(t, 3) {
			urls = append(urls, "redis://"+node.Addr)
		}
		if run(t, options(t, urls...)).Failed() {
			t.Error("violations")
		}
	})
}
