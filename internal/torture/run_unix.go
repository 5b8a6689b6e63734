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
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
)

// Options say what is tortured, and how.
type Options struct {
	// Stores are the URLs of the store: one, or the nodes of a quorum.
	Stores []string

	// Open opens them, here and in the worker processes.
	Open Opener

	// Worker is the program whose processes call Work.
	Worker func() *exec.Cmd

	// Servers are the servers of Stores, in that order, if they may be harmed.
	Servers []Server

	// Recovery is how long a server may refuse locks when it is there again.
	Recovery time.Duration

	// Setup tells the servers' programs and settings, Program what is tried out
	// with them, for the report.
	Setup, Program string

	Procs   int
	Workers int // of each process
	Names   int
	TTL     time.Duration
	Long    int // in a hundred holds, how many are to last up to three TTLs
	For     time.Duration
	Faults  []Fault // those that can be done with this store are done
	Seed    uint64

	// Dir is an empty folder for the logs.
	Dir string

	// Progress is called about once a second, if it is not nil.
	Progress func(elapsed time.Duration, faults int)
}

// run is a run under way.
type run struct {
	o         Options
	journal   *journal
	registers *registers
	processes []*process
	faults    []Fault
	done      atomic.Int64 // faults

	serverMu sync.Mutex

	mu     sync.Mutex
	err    error // why the run itself is worth nothing
	cancel context.CancelFunc
}

// Run tortures a store. The error is why that was not possible; what it found
// out is in the Report. The end of ctx ends the run early, and what was seen up
// to then is judged.
func Run(ctx context.Context, o Options) (*Report, error) {
	can, err := o.check(ctx)
	if err != nil {
		return nil, err
	}
	r := &run{o: o}
	if r.journal, err = openJournal(r.path(coordinatorLog)); err != nil {
		return nil, err
	}
	if r.registers, err = serveRegisters(r.path(registerSocket)); err != nil {
		return nil, errors.Join(err, r.journal.close())
	}
	dice := rand.New(rand.NewPCG(o.Seed, 0))
	err = r.begin(dice)
	if err == nil {
		r.faults = r.possible()
		r.torment(ctx, dice)
	}
	clashes, endErr := r.end()
	if err := errors.Join(err, r.err, endErr); err != nil {
		return nil, err
	}
	return r.report(can, clashes)
}

const (
	coordinatorLog = "coordinator.jsonl"
	registerSocket = "register"
)

// check opens the store once, to see that it can be and what it promises.
func (o *Options) check(ctx context.Context) (driver.Guarantees, error) {
	client, err := o.Open(ctx, o.Stores, nil)
	if err != nil {
		return driver.Guarantees{}, err
	}
	defer client.Close()
	for _, name := range o.names() {
		err := patiently(ctx, func() error {
			_, err := client.Lookup(ctx, name)
			return err
		})
		if err == nil {
			return driver.Guarantees{}, fmt.Errorf("the lock %q is held already: by another run?", name)
		} else if !errors.Is(err, holdfast.ErrNotHeld) && !errors.Is(err, holdfast.ErrUnsupported) {
			return driver.Guarantees{}, err
		}
	}
	return client.Guarantees(), nil
}

func (o *Options) names() []string {
	names := make([]string, o.Names)
	for i := range names {
		names[i] = fmt.Sprintf("holdfast-torture/%d", i+1)
	}
	return names
}

func (r *run) path(name string) string { return filepath.Join(r.o.Dir, name) }

// begin starts the worker processes.
func (r *run) begin(dice *rand.Rand) error {
	for i := range r.o.Procs {
		p := &process{number: i + 1}
		if err := r.connect(p); err != nil {
			return err
		}
		r.processes = append(r.processes, p)
		if err := r.start(p, dice.Uint64()); err != nil {
			return err
		}
	}
	return nil
}

// connect puts proxies between a process and the servers of the store.
func (r *run) connect(p *process) error {
	for _, store := range r.o.Stores {
		detour, proxy, err := faultproxy.Detour(store)
		if err != nil {
			return err
		}
		p.stores = append(p.stores, detour)
		if proxy != nil {
			p.proxies = append(p.proxies, proxy)
		}
	}
	return nil
}

// start starts a worker process, the first or another after one was killed.
func (r *run) start(p *process, seed uint64) error {
	cmd := r.o.Worker()
	cmd.Stderr = os.Stderr
	return p.start(cmd, orders{
		Proc:     p.number,
		Seed:     seed,
		Stores:   p.stores,
		Names:    r.o.names(),
		Workers:  r.o.Workers,
		TTL:      r.o.TTL,
		Long:     r.o.Long,
		Journal:  r.path(workerLog(p.number)),
		Register: r.path(registerSocket),
	})
}

func workerLog(proc int) string { return fmt.Sprintf("process-%d.jsonl", proc) }

// possible are the faults that can be done here.
func (r *run) possible() []Fault {
	return slices.DeleteFunc(slices.Clone(r.o.Faults), func(f Fault) bool {
		return f.onNetwork() && len(r.processes[0].proxies) == 0 ||
			f.onServer() && (len(r.o.Servers) == 0 || !r.o.Servers[0].Can(f))
	})
}

// torment does harm until the time is over.
func (r *run) torment(ctx context.Context, dice *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, r.o.For)
	defer cancel()
	r.cancel = cancel
	var group sync.WaitGroup
	if len(r.faults) > 0 {
		for range max(1, min(mostImps, len(r.processes)/2)) {
			i := &imp{run: r, ctx: ctx, dice: rand.New(rand.NewPCG(dice.Uint64(), 0))}
			group.Go(i.work)
		}
	}
	began := now()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ticker.C:
			if r.o.Progress != nil {
				r.o.Progress(now()-began, int(r.done.Load()))
			}
		case <-ctx.Done():
		}
	}
	group.Wait()
}

// end ends the processes and the services, and returns the lost updates.
func (r *run) end() ([]string, error) {
	limit, cancel := context.WithTimeout(context.Background(), time.Minute+2*r.o.TTL)
	defer cancel()
	var errs []error
	for _, p := range r.processes {
		if p.cmd != nil && !p.finish(limit) {
			errs = append(errs, fmt.Errorf("process %d did not end", p.number))
		} else if p.cmd != nil && p.err != nil {
			errs = append(errs, fmt.Errorf("process %d: %w", p.number, p.err))
		}
		for _, proxy := range p.proxies {
			proxy.Close()
		}
	}
	clashes := r.registers.close()
	errs = append(errs, r.journal.close())
	return clashes, errors.Join(errs...)
}

// event notes what the coordinator does.
func (r *run) event(s Step, of Event) {
	if s == Harm {
		r.done.Add(1)
	}
	of.At, of.Step = now(), s
	r.journal.write(of)
}

// broken ends a run that cannot go on.
func (r *run) broken(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = errors.Join(r.err, err)
	r.cancel()
}
