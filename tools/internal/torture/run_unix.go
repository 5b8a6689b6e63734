//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
)

// Options configure a run.
type Options struct {
	// Stores are the URLs of the store: one, or the nodes of a quorum.
	Stores []string

	// Open opens them, here and in the worker processes.
	Open Opener

	// Foreign reports that the worker processes have a client of another kind, too.
	Foreign bool

	// Worker returns a command that calls Work.
	Worker func() *exec.Cmd

	// Servers are the servers of Stores, in the same order, if faults may be injected in them.
	Servers []Server

	// Leader returns the index of the server that leads the others, if it is not nil. Every other
	// fault of a server is one of the leader.
	Leader func() int

	// Recovery is how long a server may refuse locks after it has restarted.
	Recovery time.Duration

	Procs   int
	Workers int // of each process
	Names   int
	TTL     time.Duration
	Long    int  // of a hundred leases, how many are to last up to three TTLs
	Shared  bool // most acquisitions tolerate all but exclusive ones
	Limit   int  // most others tolerate each other up to this many; 0 for none
	For     time.Duration
	Faults  []Fault // those that this store supports are injected
	Seed    uint64

	// Dir is an empty folder for the logs.
	Dir string
}

// A tortureRun is a run in progress.
type tortureRun struct {
	options   Options
	log       *eventLog
	processes []*process
	faults    []Fault
	serverMu  sync.Mutex

	mu     sync.Mutex
	err    error // why the run itself is invalid
	cancel context.CancelFunc
}

// Run tortures a store. It returns an error if that was not possible. The Report contains its
// findings. The end of ctx ends the run early, and the history up to then is checked.
func Run(ctx context.Context, o Options) (*Report, error) {
	can, err := o.checkStore(ctx)
	if err != nil {
		return nil, err
	}
	r := &tortureRun{options: o}
	if r.log, err = openEventLog(r.filePath(coordinatorLog)); err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(o.Seed, 0))
	err = r.startWorkers(rng)
	if err == nil {
		r.awaitWorkers(ctx)
		r.faults = r.possibleFaults()
		r.runNemeses(ctx, rng)
	}
	if err := errors.Join(err, r.err, r.stopWorkers()); err != nil {
		return nil, err
	}
	return r.buildReport(can)
}

const coordinatorLog = "coordinator.jsonl"

// checkStore opens the store once, to check that it works and that its locks are free. It returns
// the guarantees of the store.
func (o *Options) checkStore(ctx context.Context) (driver.Guarantees, error) {
	client, err := o.Open(ctx, o.Stores, nil)
	if err != nil {
		return driver.Guarantees{}, err
	}
	defer client.Close()
	can := client.Guarantees()
	if (o.Shared || o.Limit > 1) && !can.Limits {
		return can, fmt.Errorf("%w: the store has no shared locks and none with a limit", holdfast.ErrUnsupported)
	}
	for _, name := range o.lockNames() {
		err := untilAvailable(ctx, func() error {
			_, err := client.Lookup(ctx, name)
			return err
		})
		if err == nil {
			return driver.Guarantees{}, fmt.Errorf("the lock %q is held already: by another run?", name)
		} else if !errors.Is(err, holdfast.ErrNotHeld) && !errors.Is(err, holdfast.ErrUnsupported) {
			return driver.Guarantees{}, err
		}
	}
	return can, nil
}

func (o *Options) lockNames() []string {
	names := make([]string, o.Names)
	for i := range names {
		names[i] = fmt.Sprintf("holdfast-torture/%d", i+1)
	}
	return names
}

func (r *tortureRun) filePath(name string) string { return filepath.Join(r.options.Dir, name) }

// startWorkers starts the worker processes.
func (r *tortureRun) startWorkers(rng *rand.Rand) error {
	for i := range r.options.Procs {
		p := &process{number: i + 1}
		if err := r.startProxies(p); err != nil {
			return err
		}
		r.processes = append(r.processes, p)
		if err := r.startWorker(p, rng.Uint64()); err != nil {
			return err
		}
	}
	return nil
}

// startTimeout bounds the wait for the first worker processes, which may start slowly on a busy
// machine.
const startTimeout = time.Minute

// awaitWorkers waits until all worker processes have begun or exited, so that the time of the run
// does not include their start.
func (r *tortureRun) awaitWorkers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, p := range r.processes {
		select {
		case <-p.started:
		case <-ctx.Done():
		}
	}
}

// startProxies starts proxies between a process and the servers of the store.
func (r *tortureRun) startProxies(p *process) error {
	for _, store := range r.options.Stores {
		detour, proxies, err := faultproxy.Detour(store)
		if err != nil {
			return err
		}
		p.stores = append(p.stores, detour)
		p.proxies = append(p.proxies, proxies...)
	}
	return nil
}

// startWorker starts a worker process, the first one or the successor of a killed one.
func (r *tortureRun) startWorker(p *process, seed uint64) error {
	cmd := r.options.Worker()
	cmd.Stderr = os.Stderr
	return p.start(cmd, workerConfig{
		Proc:    p.number,
		Seed:    seed,
		Stores:  p.stores,
		Names:   r.options.lockNames(),
		Workers: r.options.Workers,
		TTL:     r.options.TTL,
		Long:    r.options.Long,
		Shared:  r.options.Shared,
		Limit:   r.options.Limit,
		Foreign: r.options.Foreign,
		Journal: r.filePath(workerLogName(p.number)),
	})
}

func workerLogName(proc int) string { return fmt.Sprintf("process-%d.jsonl", proc) }

// possibleFaults returns the faults that can be injected here.
func (r *tortureRun) possibleFaults() []Fault {
	return slices.DeleteFunc(slices.Clone(r.options.Faults), func(f Fault) bool {
		return f.isNetworkFault() && len(r.processes[0].proxies) == 0 ||
			f.isServerFault() && (len(r.options.Servers) == 0 || f == ServerForget && r.options.Servers[0].Forget == nil)
	})
}

// runNemeses injects faults until the time of the run is over.
func (r *tortureRun) runNemeses(ctx context.Context, rng *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, r.options.For)
	defer cancel()
	r.cancel = cancel
	var group sync.WaitGroup
	if len(r.faults) > 0 {
		for range max(1, min(maxNemeses, len(r.processes)/2)) {
			nem := &nemesis{tortureRun: r, ctx: ctx, rng: rand.New(rand.NewPCG(rng.Uint64(), 0))}
			group.Go(nem.injectFaults)
		}
	}
	<-ctx.Done()
	group.Wait()
}

// stopWorkers stops the processes and the proxies.
func (r *tortureRun) stopWorkers() error {
	limit, cancel := context.WithTimeout(context.Background(), time.Minute+2*r.options.TTL)
	defer cancel()
	var errs []error
	for _, p := range r.processes {
		if p.cmd != nil && !p.stopAndWait(limit) {
			errs = append(errs, fmt.Errorf("process %d did not end", p.number))
		} else if p.cmd != nil && p.err != nil {
			errs = append(errs, fmt.Errorf("process %d: %w", p.number, p.err))
		}
		for _, proxy := range p.proxies {
			proxy.Close()
		}
	}
	return errors.Join(append(errs, r.log.close())...)
}

// logEvent logs a step of the coordinator.
func (r *tortureRun) logEvent(s Step, of Event) {
	of.At, of.Step = now(), s
	r.log.appendEvent(of)
}

// failRun ends a run that cannot go on.
func (r *tortureRun) failRun(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = errors.Join(r.err, err)
	r.cancel()
}
