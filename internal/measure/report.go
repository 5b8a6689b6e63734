//go:build unix

package measure

import (
	"context"
	"fmt"
	"math"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
)

// An Opener opens the store with these URLs: one, or the nodes of a quorum.
type Opener func(ctx context.Context, urls []string, config *holdfast.Config) (*holdfast.Client, error)

// ServeStore is Serve with the URLs of a store as the setup.
func (open Opener) ServeStore(urls []string) (Locker, error) {
	client, err := open(context.Background(), urls, nil)
	if err != nil {
		return nil, err
	}
	return NewLocker(client), nil
}

// Options configure what is measured, and for how long.
type Options struct {
	Stores []string
	Open   Opener

	// Worker returns a command that calls Serve with Open.ServeStore.
	Worker func() *exec.Cmd

	// Each is how long each measurement takes.
	Each time.Duration

	// Most is the greatest number of workers.
	Most int

	// Progress is called at the start of each measurement, if it is not nil.
	Progress func(what string)
}

// A Report is what was measured. Fields that could not be measured are nil.
type Report struct {
	Store  string    `json:"store"`
	At     time.Time `json:"at"`
	Go     string    `json:"go"`
	System string    `json:"system"`
	CPUs   int       `json:"cpus"`

	// Servers are the name and version of each server, as far as the stores report them.
	Servers []string `json:"servers,omitempty"`

	// LoadBefore and LoadAfter are the load averages of the machine over one minute. They
	// are negative where the system does not report them.
	LoadBefore float64 `json:"load_before"`
	LoadAfter  float64 `json:"load_after"`

	// TTL is the TTL of the locks, unless a measurement states another.
	TTL time.Duration `json:"ttl_ns"`

	// Acquire and Release are the times of one worker without contention.
	Acquire *Times `json:"acquire"`
	Release *Times `json:"release"`

	// Rates are pairs of acquire and release by several workers, each with a lock of its
	// own.
	Rates []Rate `json:"rates"`

	// HandOver is the time from the call of Release in one process until another process,
	// which waits, has the lock.
	HandOver *Times `json:"hand_over,omitempty"`

	// Contention is the result of workers in several processes that all want one lock.
	Contention *Contention `json:"contention,omitempty"`

	// Wire is what one pair sends over the network, Waiting what each waiter sends in a
	// second, and Holding what each held lock sends in a second.
	Wire    *Wire     `json:"wire,omitempty"`
	Waiting *IdleCost `json:"waiting,omitempty"`
	Holding *IdleCost `json:"holding,omitempty"`
}

// A Rate is how often something was done.
type Rate struct {
	Workers   int     `json:"workers"`
	PerSecond float64 `json:"per_second"`
	Times     *Times  `json:"times"` // of a pair
}

// Contention is the result of workers in several processes that want one lock.
type Contention struct {
	Processes int     `json:"processes"`
	Workers   int     `json:"workers"` // of each process
	PerSecond float64 `json:"per_second"`

	// Jain is Jain's index of fairness over the processes, and JainWorkers over all
	// workers: 1 if all were served equally often, and 1/n if one of n had all.
	Jain        float64 `json:"jain"`
	JainWorkers float64 `json:"jain_workers"`

	// Wait is how long a worker waited.
	Wait *Times `json:"wait"`
}

// Wire is the traffic of one pair of acquire and release.
type Wire struct {
	Sent     float64 `json:"bytes_sent"`
	Received float64 `json:"bytes_received"`
	Requests float64 `json:"requests"`
}

// IdleCost is the traffic of locks or waiters while nothing happens.
type IdleCost struct {
	Count    int     `json:"count"`
	Requests float64 `json:"requests_per_second"` // of each
	Bytes    float64 `json:"bytes_per_second"`    // of each, both ways
}

// A runner makes the measurements of a report.
type runner struct {
	Options
	ctx     context.Context
	report  Report
	locker  Locker
	proxies []*faultproxy.Proxy
}

// Run makes all measurements. The end of ctx ends it with an error.
func Run(ctx context.Context, o Options) (*Report, error) {
	client, err := o.Open(ctx, o.Stores, nil)
	if err != nil {
		return nil, err
	}
	r := &runner{Options: o, ctx: ctx, locker: NewLocker(client)}
	defer r.locker.Close() // Its error does not matter: nothing is held.
	guarantees := client.Guarantees()
	r.report = Report{
		Store: guarantees.Store, At: time.Now().Round(time.Second), CPUs: runtime.NumCPU(),
		Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH,
		Servers: r.serverVersions(), LoadBefore: LoadAverage(), TTL: holdfast.DefaultTTL,
	}
	measurements := []func() error{r.measurePairs}
	if guarantees.Scope != driver.ScopeProcess {
		measurements = append(measurements, r.measureHandOver, r.measureContention)
	}
	for _, measure := range append(measurements, r.measureTraffic) {
		if err := measure(); err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	r.report.LoadAfter = LoadAverage()
	return &r.report, nil
}

// serverVersions returns the versions of the servers, each once.
func (r *runner) serverVersions() []string {
	var all []string
	for _, url := range r.Stores {
		client, err := r.Open(r.ctx, []string{url}, nil)
		if err != nil {
			continue // The measurements report the error, if it matters to them.
		}
		if store, ok := client.Store().(interface {
			ServerVersion(ctx context.Context) (string, error)
		}); ok {
			if version, err := store.ServerVersion(r.ctx); err == nil && !slices.Contains(all, version) {
				all = append(all, version)
			}
		}
		_ = client.Close() // It holds nothing.
	}
	return all
}

func (r *runner) reportProgress(format string, args ...any) {
	if r.Progress != nil {
		r.Progress(fmt.Sprintf(format, args...))
	}
}

// prefix begins the names of locks that no other program uses.
const prefix = "holdfast-bench/"

// measurePairs measures one worker, and then more and more, each with a lock of its own.
func (r *runner) measurePairs() error {
	for workers := 1; workers <= r.Most; workers *= 8 {
		r.reportProgress("%d workers, each with a lock of its own", workers)
		acquires, releases := make([][]time.Duration, workers), make([][]time.Duration, workers)
		pairs := make([][]time.Duration, workers)
		counts, err := Pairs(r.ctx, r.locker, workers, OwnNames(prefix+"rate"), r.Each,
			func(i int, acquire, release time.Duration) {
				acquires[i], releases[i] = append(acquires[i], acquire), append(releases[i], release)
				pairs[i] = append(pairs[i], acquire+release)
			})
		if err != nil {
			return err
		}
		if workers == 1 {
			r.report.Acquire, r.report.Release = newTimes(acquires[0]), newTimes(releases[0])
		}
		rate := Rate{workers, Sum(counts) / r.Each.Seconds(), newTimes(slices.Concat(pairs...))}
		r.report.Rates = append(r.report.Rates, rate)
	}
	return nil
}

// measureHandOver measures how soon a lock goes from one process to another.
func (r *runner) measureHandOver() error {
	r.reportProgress("hand-over between two processes")
	return WithWorkers(r.ctx, 2, r.Worker, r.Stores, func(workers []*Worker) error {
		idle, err := HandOvers(workers[0], workers[1], prefix+"handover", math.MaxInt, 2*r.Each)
		r.report.HandOver = newTimes(idle)
		return err
	})
}

// measureContention measures how often each of many workers gets one lock.
func (r *runner) measureContention() error {
	const processes, workers = 4, 4
	r.reportProgress("%d processes with %d workers each that want one lock", processes, workers)
	span := 2 * r.Each
	return WithWorkers(r.ctx, processes, r.Worker, r.Stores, func(all []*Worker) error {
		waits, err := AllPairs(all, prefix+"contention", workers, span)
		byProcess, byWorker := make([]float64, processes), make([]float64, len(waits))
		for i, own := range waits {
			byProcess[i/workers] += float64(len(own))
			byWorker[i] = float64(len(own))
		}
		r.report.Contention = &Contention{
			Processes: processes, Workers: workers,
			PerSecond: Sum(byWorker) / span.Seconds(),
			Jain:      Jain(byProcess), JainWorkers: Jain(byWorker),
			Wait: newTimes(slices.Concat(waits...)),
		}
		return err
	})
}

// The numbers of idle waiters and held locks, and the TTL of these locks.
const (
	waiterCount = 50
	heldCount   = 1000
	idleTTL     = 6 * time.Second
)

// measureTraffic measures what goes over the network, through proxies. It measures nothing if a
// store cannot be reached through one.
func (r *runner) measureTraffic() error {
	var urls []string
	for _, store := range r.Stores {
		url, proxies, err := faultproxy.Detour(store)
		if err != nil {
			return err
		}
		if proxies == nil {
			return nil
		}
		for _, proxy := range proxies {
			defer proxy.Close()
		}
		urls, r.proxies = append(urls, url), append(r.proxies, proxies...)
	}
	client, err := r.Open(r.ctx, urls, &holdfast.Config{Options: holdfast.Options{TTL: idleTTL}})
	if err != nil {
		return err
	}
	proxied := NewLocker(client)
	defer proxied.Close() // Its error does not matter: nothing is held.

	r.reportProgress("traffic of a pair")
	if r.report.Wire, err = r.measurePairTraffic(proxied); err != nil {
		return err
	}
	r.reportProgress("%d waiters for one lock", waiterCount)
	if r.report.Waiting, err = r.measureWaiting(proxied); err != nil {
		return err
	}
	r.reportProgress("%d locks held, TTL %v", heldCount, idleTTL)
	return HoldMany(r.ctx, proxied, heldCount, OwnNames(prefix+"held"), func() error {
		r.report.Holding = r.measureIdleCost(heldCount)
		return nil
	})
}

func (r *runner) measurePairTraffic(proxied Locker) (*Wire, error) {
	var upBefore, downBefore faultproxy.Traffic
	const warmUps, pairs = 10, 500
	for i := range warmUps + pairs {
		if i == warmUps {
			upBefore, downBefore = r.totalTraffic()
		}
		held, err := proxied.Acquire(r.ctx, prefix+"wire")
		if err != nil {
			return nil, err
		}
		if err := held.Release(r.ctx); err != nil {
			return nil, err
		}
	}
	up, down := r.totalTraffic()
	return &Wire{
		Sent:     float64(up.Bytes-upBefore.Bytes) / pairs,
		Received: float64(down.Bytes-downBefore.Bytes) / pairs,
		Requests: float64(up.Reads-upBefore.Reads) / pairs,
	}, nil
}

// measureWaiting measures the traffic of waiters. The lock is held, and renewed, by a client
// without a proxy, so that only the traffic of the waiters is counted.
func (r *runner) measureWaiting(proxied Locker) (*IdleCost, error) {
	held, err := r.locker.Acquire(r.ctx, prefix+"waiting")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(r.ctx)
	var group sync.WaitGroup
	for range waiterCount {
		group.Go(func() {
			if unwanted, err := proxied.Acquire(ctx, prefix+"waiting"); err == nil {
				_ = unwanted.Release(ctx) // Its TTL ends it.
			}
		})
	}
	cost := r.measureIdleCost(waiterCount)
	cancel()
	group.Wait()
	return cost, held.Release(r.ctx)
}

// measureIdleCost counts the traffic of so many locks or waiters, after they have settled.
func (r *runner) measureIdleCost(count int) *IdleCost {
	r.sleep(idleTTL / 6)
	upBefore, downBefore := r.totalTraffic()
	began := time.Now()
	r.sleep(idleTTL * 2 / 3) // Two rounds of renewals.
	seconds := time.Since(began).Seconds()
	up, down := r.totalTraffic()
	bytes := up.Bytes - upBefore.Bytes + down.Bytes - downBefore.Bytes
	return &IdleCost{
		Count:    count,
		Requests: float64(up.Reads-upBefore.Reads) / seconds / float64(count),
		Bytes:    float64(bytes) / seconds / float64(count),
	}
}

// totalTraffic returns the traffic through all proxies up to now.
func (r *runner) totalTraffic() (up, down faultproxy.Traffic) {
	for _, p := range r.proxies {
		u, d := p.Traffic(faultproxy.Up), p.Traffic(faultproxy.Down)
		up.Bytes, up.Reads = up.Bytes+u.Bytes, up.Reads+u.Reads
		down.Bytes, down.Reads = down.Bytes+d.Bytes, down.Reads+d.Reads
	}
	return up, down
}

func (r *runner) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.ctx.Done():
	}
}
