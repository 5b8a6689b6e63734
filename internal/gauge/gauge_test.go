//go:build unix

package gauge

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/filestore"
	"github.com/holdfast-go/holdfast/internal/servers"
	_ "github.com/holdfast-go/holdfast/memstore"
	_ "github.com/holdfast-go/holdfast/redisstore"
)

// TestMain lets the test binary be a worker process.
func TestMain(m *testing.M) {
	if os.Getenv("GAUGE_WORKER") == "" {
		os.Exit(m.Run())
	}
	if err := Work(os.Stdin, os.Stdout, open); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func open(ctx context.Context, urls []string, config *holdfast.Config) (*holdfast.Client, error) {
	return holdfast.Open(ctx, urls[0], config)
}

func measure(t *testing.T, store string) *Report {
	t.Helper()
	r, err := Run(context.Background(), Options{
		Stores: []string{store}, Open: open, Each: 300 * time.Millisecond, Most: 8,
		Worker: func() *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "GAUGE_WORKER=1", "GORACE=atexit_sleep_ms=0")
			return cmd
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for what, times := range map[string]*Times{"acquire": r.Acquire, "release": r.Release} {
		if times == nil || times.Count == 0 || times.P50 <= 0 || times.P50 > times.P99 || times.P99 > times.Max {
			t.Errorf("%s: %+v", what, times)
		}
	}
	if len(r.Rates) != 2 || r.Rates[0].Workers != 1 || r.Rates[1].Workers != 8 || r.Rates[1].PerSecond <= 0 {
		t.Errorf("rates: %+v", r.Rates)
	}
	return r
}

func TestMemory(t *testing.T) {
	r := measure(t, "memory:")
	if r.HandOver != nil || r.Contention != nil || r.Wire != nil {
		t.Error("a store of one process was measured between processes, or on the network")
	}
}

func TestFile(t *testing.T) {
	r := measure(t, "file:"+t.TempDir())
	if r.Contention == nil || r.Contention.Wait.Count == 0 || r.Contention.Jain <= 0 || r.Contention.Jain > 1 {
		t.Errorf("contention: %+v", r.Contention)
	}
	if r.Wire != nil {
		t.Error("there is no network, and it was measured")
	}
}

func TestRedis(t *testing.T) {
	r := measure(t, "redis://"+servers.StartRedis(t).Addr)
	if r.Wire == nil || r.Wire.Requests != 2 {
		t.Errorf("wire: %+v, want two requests for a pair", r.Wire)
	}
	if r.Waiting == nil || r.Waiting.Count != waiters || r.Holding == nil || r.Holding.Count != held || r.Holding.Bytes <= 0 {
		t.Errorf("waiting %+v, holding %+v", r.Waiting, r.Holding)
	}
	checkOutputs(t, r)
}

// checkOutputs checks that all there is can be read in each form of the report.
func checkOutputs(t *testing.T, r *Report) {
	t.Helper()
	var text, page strings.Builder
	if err := r.Write(&text); err != nil {
		t.Error(err)
	}
	if err := r.WritePage(&page); err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(text.String()) {
		if len([]rune(line)) > 81 {
			t.Errorf("a line is longer than 80 columns: %s", line)
		}
	}
	for _, want := range []string{"acquire", "release", "workers", "hand-over", "fairness (1 is best)", "a waiter (of 50)", "a lock held (of 1000"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text has nothing of %q:\n%s", want, text.String())
		}
	}
	if strings.Count(page.String(), "<svg") != 5 || strings.Contains(page.String(), "%!") {
		t.Errorf("the page is not what it should be:\n%s", page.String())
	}
	var back Report
	data, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(data, &back)
	}
	if err != nil || back.Acquire.Count != r.Acquire.Count || *back.Wire != *r.Wire {
		t.Errorf("as JSON: %v, %s", err, data)
	}
}

func TestTimes(t *testing.T) {
	var all []time.Duration
	for i := 1000; i > 0; i-- {
		all = append(all, time.Duration(i)*time.Microsecond)
	}
	got := newTimes(all)
	if got.Count != 1000 || got.P50 != 500*time.Microsecond || got.P99 != 990*time.Microsecond ||
		got.P999 != 999*time.Microsecond || got.Max != time.Millisecond {
		t.Errorf("%+v", got)
	}
	count := 0
	for i, bin := range got.Bins {
		count += bin.Count
		if i > 0 && bin.From <= got.Bins[i-1].From {
			t.Errorf("bins do not rise: %v", got.Bins)
		}
	}
	if count != 1000 {
		t.Errorf("the bins have %d values, want 1000", count)
	}
	if newTimes(nil) != nil {
		t.Error("there are times of nothing")
	}
}

func TestJain(t *testing.T) {
	for _, tt := range []struct {
		shares []float64
		want   float64
	}{{[]float64{5, 5, 5, 5}, 1}, {[]float64{20, 0, 0, 0}, 0.25}, {[]float64{3, 1}, 0.8}, {[]float64{0, 0}, 0}} {
		if got := jain(tt.shares); got != tt.want {
			t.Errorf("jain(%v) = %v, want %v", tt.shares, got, tt.want)
		}
	}
}

// A grant is a hand-over only if it went to a process that was waiting, and that
// did not have the lock itself just before.
func TestHandOvers(t *testing.T) {
	const ms = time.Millisecond
	got := handOvers([][]turn{
		{{Asked: 0, Got: 1 * ms}, {Asked: 2 * ms, Got: 7 * ms}},
		{{Asked: 0, Got: 4 * ms}, {Asked: 5 * ms, Got: 6 * ms}, {Asked: 9 * ms, Got: 10 * ms}},
	})
	if len(got) != 2 || got[0] != 3*ms || got[1] != 1*ms {
		t.Errorf("hand-overs %v, want 3ms and 1ms", got)
	}
}
