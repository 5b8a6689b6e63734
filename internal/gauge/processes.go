//go:build unix

package gauge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/hostclock"
)

// Contention is what became of workers in several processes who want one lock.
type Contention struct {
	Processes int     `json:"processes"`
	Workers   int     `json:"workers"` // of each process
	PerSecond float64 `json:"per_second"`

	// Jain is Jain's index of fairness: 1 if all were served equally often, and
	// 1/n if one of n had all. Of the processes, and of all workers.
	Jain        float64 `json:"jain"`
	JainWorkers float64 `json:"jain_workers"`

	// Wait is how long a worker waited.
	Wait *Times `json:"wait"`
}

// orders are what a worker process is told on its standard input.
type orders struct {
	Stores  []string
	Name    string
	Workers int
	For     time.Duration
}

// A turn is one time that a worker had the lock; the times are readings of the
// clock of the host.
type turn struct {
	Worker int
	Asked  time.Duration
	Got    time.Duration // and released at once
}

// Work is the work of a worker process: it says that it is ready, waits for a
// line, works, and prints its turns.
func Work(in io.Reader, out io.Writer, open Opener) error {
	decoder := json.NewDecoder(in)
	var o orders
	if err := decoder.Decode(&o); err != nil {
		return fmt.Errorf("read the orders: %w", err)
	}
	turns, err := o.work(decoder, out, open)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(turns)
}

// several measures workers of several processes who want one lock.
func (m *meter) several(processes int, o orders) ([][]turn, error) {
	o.Stores = m.Stores
	began := make([]*workerProcess, 0, processes)
	defer func() {
		for _, p := range began {
			p.end()
		}
	}()
	for range processes {
		p, err := m.startWorker(o)
		if err != nil {
			return nil, err
		}
		began = append(began, p)
	}
	for _, p := range began {
		if err := p.awaitReady(); err != nil {
			return nil, err
		}
	}
	for _, p := range began {
		if _, err := fmt.Fprintln(p.in, `"go"`); err != nil {
			return nil, err
		}
	}
	all := make([][]turn, processes)
	for i, p := range began {
		if err := p.out.Decode(&all[i]); err != nil {
			return nil, fmt.Errorf("a worker process has failed: %w", err)
		}
	}
	return all, nil
}

type workerProcess struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

func (m *meter) startWorker(o orders) (*workerProcess, error) {
	cmd := m.Worker()
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &workerProcess{cmd, in, json.NewDecoder(out)}
	return p, json.NewEncoder(in).Encode(o)
}

func (p *workerProcess) awaitReady() error {
	var word string
	if err := p.out.Decode(&word); err != nil {
		return fmt.Errorf("a worker process has failed: %w", err)
	}
	return nil
}

func (p *workerProcess) end() {
	_ = p.in.Close()         // it may have ended
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()         // what there was to learn is learnt
}

// handOver measures how soon a lock goes from one process to another.
func (m *meter) handOver(r *Report) error {
	m.tell("hand-over between two processes")
	turns, err := m.several(2, orders{Name: name("handover", 1), Workers: 1, For: m.Each})
	if err != nil {
		return err
	}
	r.HandOver = newTimes(handOvers(turns))
	return nil
}

// handOvers are the times from a grant, which is released at once, to the next, where that went to
// another process which was waiting for it.
func handOvers(turns [][]turn) []time.Duration {
	type had struct {
		turn
		process int
	}
	var all []had
	for process, of := range turns {
		for _, t := range of {
			all = append(all, had{t, process})
		}
	}
	slices.SortFunc(all, func(a, b had) int { return int(a.Got - b.Got) })
	var took []time.Duration
	for i := 1; i < len(all); i++ {
		before, after := all[i-1], all[i]
		if after.process != before.process && after.Asked < before.Got {
			took = append(took, after.Got-before.Got)
		}
	}
	return took
}

// contention measures who gets a lock that all want.
func (m *meter) contention(r *Report) error {
	const processes, workers = 4, 4
	m.tell("%d processes with %d workers each who want one lock", processes, workers)
	long := 2 * m.Each
	turns, err := m.several(processes, orders{Name: name("contention", 1), Workers: workers, For: long})
	if err != nil {
		return err
	}
	c := &Contention{Processes: processes, Workers: workers}
	var waits []time.Duration
	byProcess := make([]float64, processes)
	byWorker := make([]float64, processes*workers)
	for process, of := range turns {
		for _, t := range of {
			byProcess[process]++
			byWorker[process*workers+t.Worker]++
			waits = append(waits, t.Got-t.Asked)
		}
	}
	c.PerSecond = float64(len(waits)) / long.Seconds()
	c.Jain, c.JainWorkers = jain(byProcess), jain(byWorker)
	c.Wait = newTimes(waits)
	r.Contention = c
	return nil
}

// jain is Jain's index of fairness (Jain, Chiu and Hawe, 1984).
func jain(shares []float64) float64 {
	var sum, squares float64
	for _, s := range shares {
		sum += s
		squares += s * s
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// work is the work of a process; see Work.
func (o *orders) work(in *json.Decoder, out io.Writer, open Opener) ([]turn, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client, err := open(ctx, o.Stores, nil)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintln(out, `"ready"`); err != nil {
		return nil, err
	}
	var word string
	if err := in.Decode(&word); err != nil {
		return nil, err
	}
	go func() {
		_ = in.Decode(&word) // which fails when whoever measures has ended
		cancel()
	}()
	turns := make([][]turn, o.Workers)
	errs := make([]error, o.Workers)
	var group sync.WaitGroup
	for i := range o.Workers {
		group.Go(func() { turns[i], errs[i] = o.takeTurns(ctx, client, i) })
	}
	group.Wait()
	errs = append(errs, client.Close())
	return slices.Concat(turns...), errors.Join(errs...)
}

// takeTurns acquires and releases the lock again and again.
func (o *orders) takeTurns(ctx context.Context, client *holdfast.Client, worker int) ([]turn, error) {
	ctx, cancel := context.WithTimeout(ctx, o.For)
	defer cancel()
	var turns []turn
	for {
		asked := hostclock.Now()
		lock, err := client.Acquire(ctx, o.Name, nil)
		if ctx.Err() != nil {
			if err == nil {
				err = lock.Release()
				return turns, err
			}
			return turns, nil
		}
		if err != nil {
			return turns, err
		}
		got := hostclock.Now()
		turns = append(turns, turn{worker, asked, got})
		if err := lock.Release(); err != nil {
			return turns, err
		}
	}
}
