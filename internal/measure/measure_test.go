//go:build unix

package measure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/filestore"
	"github.com/holdfast-go/holdfast/internal/hostclock"
	"github.com/holdfast-go/holdfast/internal/servers"
	_ "github.com/holdfast-go/holdfast/memstore"
	_ "github.com/holdfast-go/holdfast/redisstore"
)

// TestMain lets the test binary be a worker process.
func TestMain(m *testing.M) {
	if os.Getenv("MEASURE_WORKER") == "" {
		os.Exit(m.Run())
	}
	if err := Serve(os.Stdin, os.Stdout, Opener(open).ServeStore); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func open(ctx context.Context, urls []string, config *holdfast.Config) (*holdfast.Client, error) {
	return holdfast.Open(ctx, urls[0], config)
}

// worker returns a command that runs TestMain as a worker process.
func worker() *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "MEASURE_WORKER=1", "GORACE=atexit_sleep_ms=0")
	return cmd
}

func measure(t *testing.T, store string) *Report {
	t.Helper()
	r, err := Run(context.Background(), Options{
		Stores: []string{store}, Open: open, Each: 300 * time.Millisecond, Most: 8,
		Worker: worker,
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
	if r.Waiting == nil || r.Waiting.Count != waiterCount || r.Holding == nil || r.Holding.Count != heldCount || r.Holding.Bytes <= 0 {
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
	for _, want := range []string{"redis store on Redis ", "TTL of the locks 30s", "load average "} {
		if runtime.GOOS == "linux" && (!strings.Contains(text.String(), want) || !strings.Contains(page.String(), want)) {
			t.Errorf("the text or the page does not say %q", want)
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
	if got.Count != 1000 || got.P50 != 500_500 || got.P99 != 990_009 || got.P999 != 999_000 ||
		got.Max != time.Millisecond {
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
	}{{[]float64{5, 5, 5, 5}, 1}, {[]float64{20, 0, 0, 0}, 0.25}, {[]float64{3, 1}, 0.8}, {[]float64{8, 0, 0, 0}, 0.25}, {[]float64{0, 0}, 0}} {
		if got := Jain(tt.shares); got != tt.want {
			t.Errorf("Jain(%v) = %v, want %v", tt.shares, got, tt.want)
		}
	}
}

// The times of a hand-over are those of two processes, in turn, and at most as many as wanted.
func TestHandOvers(t *testing.T) {
	url := "file:" + t.TempDir()
	err := WithWorkers(t.Context(), 2, worker, []string{url}, func(workers []*Worker) error {
		idle, err := HandOvers(workers[0], workers[1], "job", 3, time.Minute)
		if len(idle) != 3 || slices.Min(idle) <= 0 || slices.Max(idle) > time.Minute {
			t.Errorf("the lock was idle for %v", idle)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A lock whose holder was killed is taken over after it expired, and a waiter that does not get
// it within the bound is killed.
func TestTakeOver(t *testing.T) {
	server := servers.StartRedis(t)
	takeOver := func(expiresIn, bound time.Duration) (idle time.Duration) {
		err := WithWorkers(t.Context(), 2, worker, []string{"redis://" + server.Addr}, func(workers []*Worker) (err error) {
			idle, err = TakeOver(workers[0], workers[1], "job", bound, func() (time.Duration, error) {
				expires := hostclock.Now() + expiresIn
				if expiresIn == 0 {
					server.Do("FLUSHALL")
				}
				return expires, nil
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return idle
	}
	if idle := takeOver(0, time.Hour); idle <= 0 || idle > holdfast.DefaultTTL*2 {
		t.Errorf("the lock was idle for %v", idle)
	}
	server.Do("FLUSHALL")
	if idle := takeOver(time.Millisecond, 200*time.Millisecond); idle != 200*time.Millisecond {
		t.Errorf("a waiter that never gets the lock: %v, want the bound", idle)
	}
}

// The end of the context kills the workers: a request that does not end does not hold up the
// measurement.
func TestWorkersAreKilled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := WithWorkers(ctx, 2, worker, []string{"file:" + t.TempDir()}, func(workers []*Worker) error {
		if _, err := workers[0].Acquire("job"); err != nil {
			return err
		}
		acquired := startAcquire(workers[1], "job")
		cancel()
		return (<-acquired).err
	})
	if err == nil {
		t.Error("a lock that is held was acquired")
	}
}

// A worker returns the errors of its locker, and ends when its input does.
func TestServe(t *testing.T) {
	err := WithWorkers(t.Context(), 1, worker, []string{"file:" + t.TempDir()}, func(workers []*Worker) error {
		if _, err := workers[0].Acquire("\x00"); err == nil || !strings.Contains(err.Error(), "name") {
			t.Errorf("acquire a name that cannot be: %v", err)
		}
		if err := workers[0].StartWaiters("job", 3); err != nil {
			return err
		}
		began := hostclock.Now()
		last, err := workers[0].AwaitWaiters()
		if err == nil && (last <= 0 || last > began+time.Minute) {
			t.Errorf("the last waiter had the lock at %v", last)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = WithWorkers(t.Context(), 1, worker, []string{"nosuch:"}, func([]*Worker) error {
		t.Error("a worker without a store is in use")
		return nil
	})
	if err == nil {
		t.Error("a worker whose store cannot be opened has no error")
	}
}

// A waiter that fails, to acquire or to release, does not count as served.
func TestFailedWaiter(t *testing.T) {
	for _, l := range []*failingLocker{{failAt: 2}, {failAt: 5}, {failAt: 6}} {
		const requests = `[] {"Method":"start waiters","Name":"job","Goroutines":3} {"Method":"await waiters"}`
		var out bytes.Buffer
		opened := func([]string) (Locker, error) { return l, nil }
		if err := Serve(strings.NewReader(requests), &out, opened); err != nil {
			t.Fatal(err)
		}
		var reply workerReply
		for replies := json.NewDecoder(&out); replies.More(); {
			if err := replies.Decode(&reply); err != nil {
				t.Fatal(err)
			}
		}
		if !strings.Contains(reply.Error, errFailingLocker.Error()) {
			t.Errorf("call %d fails: the waiters were awaited with the error %q", l.failAt, reply.Error)
		}
	}
}

var errFailingLocker = errors.New("the store is gone")

// A failingLocker fails at one of the calls of Acquire and Release.
type failingLocker struct {
	failAt int64
	calls  atomic.Int64
}

func (l *failingLocker) call() error {
	if l.calls.Add(1) == l.failAt {
		return errFailingLocker
	}
	return nil
}

func (l *failingLocker) Acquire(context.Context, string) (Held, error) { return l, l.call() }

func (l *failingLocker) Release(context.Context) error { return l.call() }

func (l *failingLocker) Close() error { return nil }

// Only what is completed within the span counts, and nothing is interrupted.
func TestPairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &slowLocker{free: make(chan struct{}, 1)}
		began := time.Now()
		var recorded atomic.Int64
		counts, err := Pairs(t.Context(), l, 3, SameName("job"), 10*time.Second+time.Millisecond,
			func(_ int, acquire, release time.Duration) {
				if acquire < time.Second || release != 0 {
					t.Errorf("acquire %v, release %v", acquire, release)
				}
				recorded.Add(1)
			})
		if err != nil || Sum(counts) != 10 || recorded.Load() != 10 {
			t.Errorf("%v pairs, %d recorded: %v, want 10 of a second each in 10 s", counts, recorded.Load(), err)
		}
		if took := time.Since(began); took != 13*time.Second {
			t.Errorf("it took %v, want 13 s: each goroutine completes its last pair", took)
		}
	})
}

// A slowLocker has one lock. To acquire it takes a second.
type slowLocker struct{ free chan struct{} }

func (l *slowLocker) Acquire(context.Context, string) (Held, error) {
	l.free <- struct{}{}
	time.Sleep(time.Second)
	return l, nil
}

func (l *slowLocker) Release(context.Context) error {
	<-l.free
	return nil
}

func (l *slowLocker) Close() error { return nil }

func TestQuantile(t *testing.T) {
	values := []float64{4, 1, 3, 2}
	for q, want := range map[float64]float64{0: 1, 0.5: 2.5, 1: 4, 0.25: 1.75} {
		if got := Quantile(values, q); math.Abs(got-want) > 1e-9 {
			t.Errorf("Quantile(%v) is %v, want %v", q, got, want)
		}
	}
	if got := Quantile([]float64{7}, 0.99); got != 7 {
		t.Errorf("the quantile of one value is %v", got)
	}
	if values[0] != 4 {
		t.Error("Quantile sorted the values of its caller")
	}
}

// A busy machine may hand nothing over in the time that there is.
func TestNothingWasMeasured(t *testing.T) {
	r := &Report{Contention: &Contention{}, Rates: []Rate{{Workers: 8}}}
	var text strings.Builder
	if err := r.Write(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.WritePage(&text); err != nil {
		t.Fatal(err)
	}
}

// What a counted connection carries is part of the usage of its process, and of its worker's.
func TestTraffic(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_, _ = conn.Write([]byte("answer")) // The other end notices.
		}
	}()
	before := ReadUsage()
	conn, err := CountTraffic(net.Dial("tcp", listener.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, text := range []string{"one", "more"} {
		if _, err := conn.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.ReadFull(conn, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	if used := ReadUsage().Sub(before); used.Writes != 2 || used.Sent != 7 || used.Received != 6 {
		t.Errorf("two writes of 7 bytes, and 6 bytes received, are %+v", used)
	}
	store := "file:" + t.TempDir()
	err = WithWorkers(t.Context(), 2, worker, []string{store}, func(workers []*Worker) error {
		one, err := TotalUsage(workers[:1])
		if err != nil {
			return err
		}
		both, err := TotalUsage(workers)
		if one.Allocs <= 0 || both.Allocs <= one.Allocs || both.Writes != 0 {
			t.Errorf("one worker has used %+v, both %+v", one, both)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
