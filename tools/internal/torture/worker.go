//go:build unix

package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// An Opener opens the store with these URLs: one, or the nodes of a quorum.
type Opener func(ctx context.Context, urls []string, config *holdfast.Config) (*holdfast.Client, error)

// A workerConfig is the configuration that a worker process reads from its standard input. The end
// of the input ends its work.
type workerConfig struct {
	Proc    int
	Seed    uint64
	Stores  []string
	Names   []string
	Workers int
	TTL     time.Duration
	Long    int
	Shared  bool
	Limit   int
	Foreign bool
	Journal string // path of the event log
}

// Work runs a worker process. It returns when in ends, with no lock held. If openForeign is nil,
// there are no clients of another kind.
func Work(in io.Reader, open Opener, openForeign ForeignOpener) error {
	decoder := json.NewDecoder(in)
	var config workerConfig
	if err := decoder.Decode(&config); err != nil {
		return fmt.Errorf("read the orders: %w", err)
	}
	l, err := openEventLog(config.Journal)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, io.MultiReader(decoder.Buffered(), in)) // until it ends, for whatever reason
		cancel()
	}()
	if err := config.runWorkers(ctx, l, open, openForeign); err != nil {
		l.appendEvent(Event{At: now(), Step: Fails, Proc: config.Proc, Err: err.Error()})
	}
	return l.close()
}

func (config *workerConfig) runWorkers(ctx context.Context, l *eventLog, open Opener, openForeign ForeignOpener) error {
	shared := &sharedClient{config: config, log: l, openStore: open}
	var err error
	if shared.client, err = shared.openClient(ctx, 1); err != nil {
		return err
	}
	var foreign ForeignClient
	if config.Foreign && openForeign != nil {
		if foreign, err = openForeign(config.Stores); err != nil {
			return err
		}
	}
	l.appendEvent(Event{At: now(), Step: Begins, Proc: config.Proc})
	if _, err := os.Stdout.WriteString("\n"); err != nil { // for process.started
		return err
	}
	var group sync.WaitGroup
	for i := range config.Workers + 1 {
		w := &worker{
			workerConfig: config, log: l, clients: shared,
			number: i + 1, rng: rand.New(rand.NewPCG(config.Seed, uint64(config.Proc)<<32|uint64(i))),
		}
		run := w.runAttempt
		if i == config.Workers {
			if foreign == nil {
				break
			}
			run = func(ctx context.Context) { w.runForeignAttempt(ctx, foreign) }
		}
		group.Go(func() {
			for ctx.Err() == nil {
				run(ctx)
			}
		})
	}
	faultErr := make(chan error, 1)
	go func() {
		faultErr <- shared.injectClientFaults(ctx, rand.New(rand.NewPCG(config.Seed, uint64(config.Proc)<<32|1<<31)))
	}()
	group.Wait()
	err = <-faultErr
	var leaks []string
	if shared.client.Guarantees().InProcess { // else the coordinator looks for them
		var leakErr error
		leaks, leakErr = findLeaks(shared.client.Client, config.Names, config.TTL)
		err = errors.Join(err, leakErr)
	}
	err = errors.Join(err, shared.client.Close())
	if foreign != nil {
		foreign.Close()
	}
	l.appendEvent(Event{At: now(), Step: Ends, Proc: config.Proc, Err: strings.Join(leaks, ", ")})
	return err
}

// A worker acquires one lock at a time.
type worker struct {
	*workerConfig
	log     *eventLog
	clients *sharedClient
	number  int
	rng     *rand.Rand
	try     int
	name    string
	token   int64
	limit   int // of this attempt, as in a driver.Request

	client *numberedClient // of this attempt
}

func (w *worker) recordEvent(e Event) {
	e.Proc, e.Worker, e.Try, e.Name = w.Proc, w.number, w.try, w.name
	if e.Token == 0 {
		e.Token = w.token
	}
	e.Limit = w.limit
	w.log.appendEvent(e)
}

// runAttempt acquires a lock once, uses it and releases it.
func (w *worker) runAttempt(ctx context.Context) {
	w.try++
	w.token, w.limit = 0, 0
	w.name = w.Names[w.rng.IntN(len(w.Names))]
	if last := len(w.Names) - 1; w.Foreign && w.name == w.Names[last] && w.percentChance(80) {
		w.name = w.Names[w.rng.IntN(max(last, 1))] // for the clients of another kind to get their turn
	}
	w.client = w.clients.currentClient()
	o := w.tolerance()
	if w.percentChance(30) {
		w.runAttemptUnderDo(ctx, o)
		return
	}
	stalls := w.percentChance(1)
	o.NoRenew = stalls || w.percentChance(5)
	lock, err := w.acquire(ctx, o)
	if err != nil {
		w.backOff(ctx, err)
		return
	}
	ended := w.recordContextEnd(lock.Context())
	defer func() { <-ended }() // it ends when the lock is released at the latest
	w.holdLock(ctx, lock, stalls)
	w.release(lock)
}

// tolerance chooses which other holders the attempt tolerates.
func (w *worker) tolerance() *holdfast.Options {
	o := &holdfast.Options{}
	switch {
	case w.Shared && w.percentChance(70):
		o.Shared, w.limit = true, driver.Shared
	case w.Limit > 0 && w.percentChance(90):
		o.Limit, w.limit = w.Limit, w.Limit
	}
	return o
}

// recordContextEnd logs the end of the context of a lock or of Do, and then closes the channel. It
// does not log an end because the run is over.
func (w *worker) recordContextEnd(ctx context.Context) <-chan struct{} {
	ended := make(chan struct{})
	e := Event{Step: CtxEnds, Proc: w.Proc, Worker: w.number, Try: w.try, Name: w.name, Token: w.token}
	context.AfterFunc(ctx, func() {
		defer close(ended)
		e.At = now()
		cause := context.Cause(ctx)
		e.Lost = errors.Is(cause, holdfast.ErrLost)
		e.Over = e.Lost || errors.Is(cause, holdfast.ErrReleased)
		if e.Over {
			w.log.appendEvent(e)
		}
	})
	return ended
}

// workStopDelay is how long work under Do takes at most to stop after its context has ended.
const workStopDelay = 2 * time.Millisecond

// runAttemptUnderDo is an attempt in which Do holds the lock.
func (w *worker) runAttemptUnderDo(ctx context.Context, o *holdfast.Options) {
	w.recordEvent(Event{At: now(), Step: Asks, Waits: true, Under: true})
	var ended <-chan struct{}
	err := w.client.Do(ctx, w.name, o, func(ctx context.Context) error {
		lock := holdfast.FromContext(ctx)
		w.token = lock.Token()
		at := now()
		w.recordEvent(Event{At: now(), Step: Got, Until: at + time.Until(lock.Deadline()), Under: true, Client: w.client.number})
		ended = w.recordContextEnd(ctx)
		w.workUnderDo(ctx, lock)
		w.recordEvent(Event{At: now(), Step: Releases, Under: true})
		return nil // even if the lock was lost: Do must report that
	})
	at := now()
	if ended == nil {
		w.recordEvent(Event{At: at, Step: Refused, Err: fmt.Sprint(err), Held: errors.Is(err, holdfast.ErrHeld)})
		w.backOff(ctx, err)
		return
	}
	<-ended
	w.recordEvent(Event{At: at, Step: Released, Under: true, Err: errorText(err)})
}

// workUnderDo uses a lock until the work is done or its context ends, and then for a moment more.
func (w *worker) workUnderDo(ctx context.Context, lock *holdfast.Lock) {
	length := w.randomUpTo(20 * time.Millisecond)
	if w.percentChance(2 * w.Long) {
		length = w.randomUpTo(2 * w.TTL)
	}
	for end := now() + length; ctx.Err() == nil && now() < end; {
		at := now()
		switch err := lock.Err(); {
		case err == nil:
			w.recordEvent(Event{At: at, Step: Sees, Until: at + time.Until(lock.Deadline())})
		case errors.Is(err, holdfast.ErrLost):
			w.recordEvent(Event{At: now(), Step: Loses, Err: err.Error()})
			return
		}
		_ = retry.Sleep(ctx, min(length, w.randomUpTo(w.TTL/20)))
	}
	if ctx.Err() != nil {
		time.Sleep(w.randomUpTo(workStopDelay))
	}
}

// backOff sleeps after an attempt that failed. It sleeps briefly, but longer if the store is
// unavailable: else such attempts would fill the log.
func (w *worker) backOff(ctx context.Context, err error) {
	delay := time.Millisecond
	if errors.Is(err, holdfast.ErrUnavailable) {
		delay = w.randomUpTo(w.TTL / 10)
	}
	_ = retry.Sleep(ctx, delay)
}

// acquire acquires the lock in one of the usual ways.
func (w *worker) acquire(ctx context.Context, o *holdfast.Options) (lock *holdfast.Lock, err error) {
	how := w.rng.IntN(10)
	w.recordEvent(Event{At: now(), Step: Asks, Waits: how >= 3})
	switch {
	case how < 3:
		lock, err = w.client.TryAcquire(ctx, w.name, o)
	case how < 5: // with a short timeout, which ends at any moment
		impatient, cancel := context.WithTimeout(ctx, w.randomUpTo(20*time.Millisecond))
		defer cancel()
		lock, err = w.client.Acquire(impatient, w.name, o)
	default:
		lock, err = w.client.Acquire(ctx, w.name, o)
	}
	if err != nil {
		w.recordEvent(Event{At: now(), Step: Refused, Err: err.Error(), Held: errors.Is(err, holdfast.ErrHeld)})
		return nil, err
	}
	w.token = lock.Token()
	// The time is read before the deadline: if this process is stopped between the two readings,
	// the logged deadline is too early, never too late.
	at := now()
	w.recordEvent(Event{At: now(), Step: Got, Until: at + time.Until(lock.Deadline()), Client: w.client.number})
	return lock, nil
}

// holdLock uses the lock for a while, and often checks that it still holds it.
func (w *worker) holdLock(ctx context.Context, lock *holdfast.Lock, stalls bool) {
	length := w.randomUpTo(10 * time.Millisecond)
	switch {
	case stalls:
		length = w.TTL + w.randomUpTo(w.TTL/2)
	case w.percentChance(w.Long):
		length = w.randomUpTo(3 * w.TTL) // many depend on renewal
	}
	end := now() + length
	for left := length; left > 0; left = end - now() {
		if !w.checkLock(lock) {
			return
		}
		if w.percentChance(5) && !w.extendLock(ctx, lock) {
			return
		}
		_ = retry.Sleep(ctx, min(left, w.randomUpTo(w.TTL/20)))
		if ctx.Err() != nil {
			break
		}
	}
	if w.checkLock(lock) {
	}
}

// checkLock checks whether the lock is held, and logs the result.
func (w *worker) checkLock(lock *holdfast.Lock) bool {
	at := now()
	if err := lock.Err(); err != nil {
		w.recordEvent(Event{At: now(), Step: Loses, Err: err.Error()})
		return false
	}
	w.recordEvent(Event{At: at, Step: Sees, Until: at + time.Until(lock.Deadline())})
	return true
}

func (w *worker) extendLock(ctx context.Context, lock *holdfast.Lock) bool {
	if err := lock.Extend(ctx, w.TTL); err != nil {
		return lock.Err() == nil
	}
	at := now()
	w.recordEvent(Event{At: at, Step: Extends, Until: at + time.Until(lock.Deadline())})
	return true
}

func (w *worker) release(lock *holdfast.Lock) {
	w.recordEvent(Event{At: now(), Step: Releases})
	err := lock.Release()
	w.recordEvent(Event{At: now(), Step: Released, Err: errorText(err)})
}

// percentChance returns true in percent of a hundred cases.
func (w *worker) percentChance(percent int) bool { return w.rng.IntN(100) < percent }

func (w *worker) randomUpTo(d time.Duration) time.Duration {
	return time.Duration(w.rng.Int64N(int64(max(d, 1)))) + 1
}
