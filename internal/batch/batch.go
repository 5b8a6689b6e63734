// Package batch sends the calls of many goroutines together.
package batch

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var (
	// ErrNotSent means that the time of a call was up before it was sent. Nothing was changed.
	ErrNotSent = driver.NotApplied(errors.New("given up before it was sent"))

	// ErrNoReply means that a call was sent, and that its outcome is not known.
	ErrNoReply = errors.New("no answer in time")
)

// A Queue sends calls in batches. InFlight batches are sent beside each other: a caller that finds
// room sends its calls at once, on its own goroutine. Calls that come meanwhile wait and go
// together, when a batch has ended, or they have waited for StuckAfter. A caller that gives up a
// call that was sent leaves its name behind: later calls with that name wait until the batch has
// ended, so that they do not overtake it. The fields must not be changed after the first Do.
type Queue[T comparable] struct {
	// Send sends a batch, records the results in the calls, and returns when all are there, or
	// when ctx, which may be a caller's, has ended. A Send that goes on after an early cancellation
	// has no later call overtake this one.
	Send func(ctx context.Context, calls []T)

	// Name returns the name of a call, "" for one that may overtake and be overtaken.
	Name func(call T) string

	InFlight   int           // how many batches are sent beside each other
	Max        int           // the greatest number of calls in a batch; a Do with more has its own
	Bound      time.Duration // limits a batch, and a call
	StuckAfter time.Duration // limits how long batches hold up others; 0 for none

	// MinInline is the time that a caller must have left to send its calls on its own goroutine.
	// With less another one sends them, and has the full Bound. 0 means always another one: Send
	// may then exceed the deadline of its context.
	MinInline time.Duration

	mu      sync.Mutex
	flying  []*batch[T]            // those that others wait for
	waiting []*batch[T]            // in the order in which they came
	late    map[string][]*batch[T] // those that were not awaited, by the names of their calls
}

type batch[T comparable] struct {
	calls []T           // without those that were given up while they waited
	stuck *time.Timer   // ends the wait of others for those in flight
	ended chan struct{} // closed when all calls are complete
}

// Do has calls sent together, and returns nil when they are complete. When ctx ends before, it
// returns [ErrNotSent], and they never are, or [ErrNoReply]: their results must not be read. A
// caller that sends its calls itself may stay until the deadline of a context that is canceled.
func (q *Queue[T]) Do(ctx context.Context, calls ...T) error {
	deadline, ok := ctx.Deadline()
	if latest := time.Now().Add(q.Bound); !ok || latest.Before(deadline) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, latest)
		defer cancel()
		deadline = latest
	}
	name := q.Name(calls[0])
	q.mu.Lock()
	for len(q.late[name]) > 0 {
		b := q.late[name][0]
		q.mu.Unlock()
		select {
		case <-b.ended:
		case <-ctx.Done():
			return errors.Join(ErrNotSent, ctx.Err())
		}
		q.mu.Lock()
	}
	if len(q.flying) < q.InFlight && q.MinInline > 0 && time.Until(deadline) >= q.MinInline {
		b := &batch[T]{calls: calls, ended: make(chan struct{})}
		q.flying = append(q.flying, b)
		q.mu.Unlock()
		q.send(ctx, b)
		return nil
	}
	if n := len(q.waiting); n == 0 || len(q.waiting[n-1].calls)+len(calls) > q.Max {
		b := &batch[T]{ended: make(chan struct{})}
		b.stuck = time.AfterFunc(cmp.Or(q.StuckAfter, math.MaxInt64), func() { q.pass(b) })
		q.waiting = append(q.waiting, b)
	}
	b := q.waiting[len(q.waiting)-1]
	b.calls = append(b.calls, calls...)
	q.sendWaiting()
	q.mu.Unlock()
	select {
	case <-b.ended:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if slices.Contains(q.waiting, b) {
		b.calls = slices.DeleteFunc(b.calls, func(c T) bool { return slices.Contains(calls, c) })
		return errors.Join(ErrNotSent, ctx.Err())
	}
	select {
	case <-b.ended:
		return nil
	default:
	}
	if name != "" {
		if q.late == nil {
			q.late = map[string][]*batch[T]{}
		}
		q.late[name] = append(q.late[name], b)
	}
	return errors.Join(ErrNoReply, ctx.Err())
}

// pass has a batch sent that has waited for StuckAfter: nobody waits any more for those in flight.
func (q *Queue[T]) pass(b *batch[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if slices.Contains(q.waiting, b) {
		q.flying = nil
		q.sendWaiting()
	}
}

// sendWaiting has sent what waits, as far as there is room. The caller holds q.mu.
func (q *Queue[T]) sendWaiting() {
	for len(q.flying) < q.InFlight && len(q.waiting) > 0 {
		b := q.waiting[0]
		q.waiting = q.waiting[1:]
		if b.stuck.Stop(); len(b.calls) == 0 {
			continue
		}
		q.flying = append(q.flying, b)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), q.Bound)
			defer cancel()
			q.send(ctx, b)
		}()
	}
}

// send sends a batch that is in flight, and has sent what waits after it.
func (q *Queue[T]) send(ctx context.Context, b *batch[T]) {
	q.Send(ctx, b.calls)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.flying = slices.DeleteFunc(q.flying, func(other *batch[T]) bool { return other == b })
	q.sendWaiting()
	maps.DeleteFunc(q.late, func(name string, late []*batch[T]) bool {
		q.late[name] = slices.DeleteFunc(late, func(other *batch[T]) bool { return other == b })
		return len(q.late[name]) == 0
	})
	close(b.ended)
}
