//go:build unix

package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
)

// An Opener opens the store that has these URLs: one, or the nodes of a quorum.
type Opener func(ctx context.Context, urls []string, config *holdfast.Config) (*holdfast.Client, error)

// orders are what a worker process is told, on its standard input. The end of
// the input is the end of its work.
type orders struct {
	Proc     int
	Seed     uint64
	Stores   []string
	Names    []string
	Workers  int
	TTL      time.Duration
	Long     int
	Journal  string
	Register string
}

// Work is the work of a worker process. It returns when in ends, with nothing
// held.
func Work(in io.Reader, open Opener) error {
	decoder := json.NewDecoder(in)
	var o orders
	if err := decoder.Decode(&o); err != nil {
		return fmt.Errorf("read the orders: %w", err)
	}
	j, err := openJournal(o.Journal)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, io.MultiReader(decoder.Buffered(), in)) // until it ends, somehow
		cancel()
	}()
	if err := o.work(ctx, j, open); err != nil {
		j.write(Event{At: now(), Step: Fails, Proc: o.Proc, Err: err.Error()})
	}
	return j.close()
}

func (o *orders) work(ctx context.Context, j *journal, open Opener) error {
	before := runtime.NumGoroutine()
	client, err := open(ctx, o.Stores, &holdfast.Config{Options: holdfast.Options{TTL: o.TTL}})
	if err != nil {
		return err
	}
	register, err := dialRegister(o.Register)
	if err != nil {
		return err
	}
	j.write(Event{At: now(), Step: Begins, Proc: o.Proc})
	var group sync.WaitGroup
	for i := range o.Workers {
		w := &worker{
			orders: o, journal: j, client: client, register: register,
			number: i + 1, dice: rand.New(rand.NewPCG(o.Seed, uint64(o.Proc)<<32|uint64(i))),
		}
		group.Go(func() {
			for ctx.Err() == nil {
				w.turn(ctx)
			}
		})
	}
	group.Wait()
	err = errors.Join(client.Close(), register.Close())
	j.write(Event{At: now(), Step: Ends, Proc: o.Proc, Goroutines: leftover(before)})
	return err
}

// leftover returns how many goroutines there are beyond those of before, when
// they have had the time to end.
func leftover(before int) int {
	for range 100 {
		if runtime.NumGoroutine() <= before {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return max(0, runtime.NumGoroutine()-before)
}

// A worker takes one lock at a time.
type worker struct {
	*orders
	journal  *journal
	client   *holdfast.Client
	register *register
	number   int
	dice     *rand.Rand
	try      int
	name     string
	token    int64
}

func (w *worker) tell(e Event) {
	e.Proc, e.Worker, e.Try, e.Name = w.Proc, w.number, w.try, w.name
	if e.Token == 0 {
		e.Token = w.token
	}
	w.journal.write(e)
}

// turn is one acquisition and what follows of it.
func (w *worker) turn(ctx context.Context) {
	w.try++
	w.token = 0
	w.name = w.Names[w.dice.IntN(len(w.Names))]
	o := &holdfast.Options{}
	oversleeps := w.chance(1)
	o.NoRenew = oversleeps || w.chance(5)
	lock, err := w.acquire(ctx, o)
	if err != nil {
		w.rest(ctx, err)
		return
	}
	ended := make(chan struct{})
	defer func() { <-ended }()
	stop := context.AfterFunc(lock.Context(), func() {
		defer close(ended)
		w.journal.write(Event{At: now(), Step: CtxEnds, Proc: w.Proc, Worker: w.number, Try: w.try, Name: w.name, Token: lock.Token()})
	})
	_ = stop // it runs at the latest when the lock is released
	w.hold(ctx, lock, oversleeps)
	w.release(lock)
}

// rest is the pause after an attempt that failed: short, but not if the store is
// not there, which would fill the log.
func (w *worker) rest(ctx context.Context, err error) {
	long := time.Millisecond
	if errors.Is(err, holdfast.ErrUnavailable) {
		long = w.upTo(w.TTL / 10)
	}
	w.pause(ctx, long)
}

// acquire asks in one of the ways in which people do.
func (w *worker) acquire(ctx context.Context, o *holdfast.Options) (lock *holdfast.Lock, err error) {
	how := w.dice.IntN(10)
	e := Event{Step: Asks, Waits: how >= 3}
	switch {
	case how < 3:
		e.At = now()
		w.tell(e)
		lock, err = w.client.TryAcquire(ctx, w.name, o)
	case how < 5: // with little patience: it gives up at any moment
		impatient, cancel := context.WithTimeout(ctx, w.upTo(20*time.Millisecond))
		defer cancel()
		e.At = now()
		w.tell(e)
		lock, err = w.client.Acquire(impatient, w.name, o)
	default:
		e.At = now()
		w.tell(e)
		lock, err = w.client.Acquire(ctx, w.name, o)
	}
	if err != nil {
		w.tell(Event{At: now(), Step: Refused, Err: err.Error()})
		return nil, err
	}
	w.token = lock.Token()
	// The time before the deadline: should we be stopped between the two
	// readings, the deadline comes out too early, never too late.
	at := now()
	w.tell(Event{At: now(), Step: Got, Until: at + time.Until(lock.Deadline())})
	return lock, nil
}

// hold uses the lock for a while, looking often whether it still has it.
func (w *worker) hold(ctx context.Context, lock *holdfast.Lock, oversleeps bool) {
	length := w.upTo(10 * time.Millisecond)
	switch {
	case oversleeps:
		length = w.TTL + w.upTo(w.TTL/2)
	case w.chance(w.Long):
		length = w.upTo(3 * w.TTL) // many depend on renewal
	}
	end := now() + length
	w.use(lock)
	for left := length; left > 0; left = end - now() {
		if !w.look(lock) {
			return
		}
		if w.chance(5) && !w.extend(ctx, lock) {
			return
		}
		w.pause(ctx, min(left, w.upTo(w.TTL/20)))
		if ctx.Err() != nil {
			break
		}
	}
	if w.look(lock) {
		w.use(lock)
	}
}

// look asks the lock, and notes the answer.
func (w *worker) look(lock *holdfast.Lock) bool {
	at := now()
	if err := lock.Err(); err != nil {
		w.tell(Event{At: now(), Step: Loses, Err: err.Error()})
		return false
	}
	w.tell(Event{At: at, Step: Sees, Until: at + time.Until(lock.Deadline())})
	return true
}

func (w *worker) extend(ctx context.Context, lock *holdfast.Lock) bool {
	if err := lock.Extend(ctx, w.TTL); err != nil {
		return lock.Err() == nil
	}
	at := now()
	w.tell(Event{At: at, Step: Extends, Until: at + time.Until(lock.Deadline())})
	return true
}

// use adds one to the register, by reading and writing it.
func (w *worker) use(lock *holdfast.Lock) {
	value, err := w.register.read(w.name, lock.Token())
	if err != nil {
		w.tell(Event{At: now(), Step: Fenced, Err: err.Error()})
		return
	}
	w.tell(Event{At: now(), Step: Reads, Value: value})
	if err := w.register.write(w.name, lock.Token(), value+1); err != nil {
		w.tell(Event{At: now(), Step: Fenced, Err: err.Error()})
		return
	}
	w.tell(Event{At: now(), Step: Writes, Value: value + 1})
}

func (w *worker) release(lock *holdfast.Lock) {
	w.tell(Event{At: now(), Step: Releases})
	e := Event{Step: Released}
	if err := lock.Release(); err != nil {
		e.Err = err.Error()
	}
	e.At = now()
	w.tell(e)
}

// chance is true so many times in a hundred.
func (w *worker) chance(percent int) bool { return w.dice.IntN(100) < percent }

func (w *worker) upTo(d time.Duration) time.Duration {
	return time.Duration(w.dice.Int64N(int64(max(d, 1)))) + 1
}

func (w *worker) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
