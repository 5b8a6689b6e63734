// Package batch sends the calls of many goroutines together.
package batch

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

var (
	// ErrNotSent means that the time of a call was up before it was sent.
	ErrNotSent = errors.New("given up before it was sent")

	// ErrNoReply means that a call was sent, and that its outcome is not known.
	ErrNoReply = errors.New("no answer in time")
)

// A Queue sends calls in batches. InFlight batches are sent beside each other: a caller that finds
// room sends its calls at once. Calls that come meanwhile wait and go together, when a batch has
// ended; the first of their callers sends them. The more calls there are, the fewer batches each
// one costs, and none needs another goroutine.
//
// A batch that takes longer than StuckAfter makes room for the next. A caller that gives up a call
// that was sent leaves its name behind: later calls with that name wait until the batch has ended,
// so that they do not overtake it.
//
// The fields must not be changed after the first Do.
type Queue[T any] struct {
	// Send sends a batch, and returns when it is complete or its context has ended. It records the
	// results in the calls. The context may be that of a caller: what is sent goes on when that is
	// canceled before its deadline.
	Send func(ctx context.Context, calls []T)

	// Name returns the name of a call, "" for one that may overtake and be overtaken.
	Name func(call T) string

	InFlight   int           // how many batches are sent beside each other
	Max        int           // the greatest number of calls in a batch; a Do with more has its own
	Bound      time.Duration // limits a batch, and a call without a deadline
	StuckAfter time.Duration // limits how long a batch holds up others; 0 for none

	// MinInline is the time that a caller must have left to send its calls on its own goroutine; it
	// needs nine tenths of Bound to send those of others, too. With less, another goroutine sends
	// them, to the full Bound. 0 means that Send may exceed the deadline of its context, and has
	// another goroutine always.
	MinInline time.Duration

	mu      sync.Mutex
	flying  int                   // batches that count
	waiting []*caller[T]          // in the order in which they came
	late    map[string]*flight[T] // the batches that were not awaited, by the names of their calls
}

// A caller is one Do that waits.
type caller[T any] struct {
	calls    []T
	deadline time.Time
	flight   *flight[T] // since its calls are sent
	wake     chan bool  // has room for one: true to send the flight, false when it has ended
}

// A flight is a batch that is sent.
type flight[T any] struct {
	q       *Queue[T]
	calls   []T
	callers []*caller[T]  // none if its caller has not waited
	left    bool          // it does not count any more
	ended   chan struct{} // closed at the end, if anybody waits for that
}

// Do has calls sent together, and returns nil when they are complete. When ctx ends before, it
// returns an error that matches [ErrNotSent] or [ErrNoReply]: the results must not be read then. A
// call is not sent after the end of ctx. A caller that sends its calls itself may stay until the
// deadline of a context that is canceled.
func (q *Queue[T]) Do(ctx context.Context, calls ...T) error {
	now := time.Now()
	deadline, ok := ctx.Deadline()
	if latest := now.Add(q.Bound); !ok || latest.Before(deadline) {
		var cancel context.CancelFunc
		deadline = latest
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	name := q.Name(calls[0])
	q.mu.Lock()
	for f := q.late[name]; f != nil; f = q.late[name] {
		q.mu.Unlock()
		select {
		case <-f.ended:
		case <-ctx.Done():
			return errors.Join(ErrNotSent, ctx.Err())
		}
		q.mu.Lock()
	}
	if q.flying < q.InFlight && len(q.waiting) == 0 && q.MinInline > 0 && deadline.Sub(now) >= q.MinInline {
		q.flying++
		q.mu.Unlock()
		(&flight[T]{q: q, calls: calls}).send(ctx)
		return nil
	}
	c := &caller[T]{calls: calls, deadline: deadline, wake: make(chan bool, 1)}
	q.waiting = append(q.waiting, c)
	q.sendWaiting()
	q.mu.Unlock()
	select {
	case lead := <-c.wake:
		if lead {
			c.flight.sendBounded()
		}
		return nil
	case <-ctx.Done():
		return q.giveUp(ctx, name, c)
	}
}

// giveUp ends a Do whose context has ended. Calls that were sent leave their name behind.
func (q *Queue[T]) giveUp(ctx context.Context, name string, c *caller[T]) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	f := c.flight
	if f == nil {
		q.waiting = slices.DeleteFunc(q.waiting, func(other *caller[T]) bool { return other == c })
		return errors.Join(ErrNotSent, ctx.Err())
	}
	select {
	case lead := <-c.wake:
		if !lead {
			return nil
		}
		go f.sendBounded()
	default:
	}
	if name != "" {
		if q.late == nil {
			q.late = map[string]*flight[T]{}
		}
		if f.ended == nil {
			f.ended = make(chan struct{})
		}
		q.late[name] = f
	}
	return errors.Join(ErrNoReply, ctx.Err())
}

// sendWaiting has sent what waits, as far as there is room. The caller holds q.mu.
func (q *Queue[T]) sendWaiting() {
	for q.flying < q.InFlight && len(q.waiting) > 0 {
		f, n := &flight[T]{q: q}, 0
		for n < len(q.waiting) && (n == 0 || len(f.calls)+len(q.waiting[n].calls) <= q.Max) {
			f.calls = append(f.calls, q.waiting[n].calls...)
			q.waiting[n].flight = f
			n++
		}
		f.callers, q.waiting = q.waiting[:n:n], q.waiting[n:]
		q.flying++
		if q.MinInline > 0 && time.Until(f.callers[0].deadline) >= q.Bound*9/10 {
			f.callers[0].wake <- true
		} else {
			go f.sendBounded()
		}
	}
}

func (f *flight[T]) sendBounded() {
	ctx, cancel := context.WithTimeout(context.Background(), f.q.Bound)
	defer cancel()
	f.send(ctx)
}

// send sends a flight, and lets what waits follow it.
func (f *flight[T]) send(ctx context.Context) {
	if f.q.StuckAfter > 0 {
		defer time.AfterFunc(f.q.StuckAfter, f.leave).Stop()
	}
	defer f.end()
	f.q.Send(ctx, f.calls)
}

// leave makes room for the next flight.
func (f *flight[T]) leave() {
	f.q.mu.Lock()
	defer f.q.mu.Unlock()
	if !f.left {
		f.left = true
		f.q.flying--
		f.q.sendWaiting()
	}
}

// end wakes the callers, and forgets the names that were left behind.
func (f *flight[T]) end() {
	f.leave()
	f.q.mu.Lock()
	defer f.q.mu.Unlock()
	for _, c := range f.callers {
		select {
		case c.wake <- false:
		default: // It has given up before it sent them.
		}
	}
	if f.ended != nil {
		close(f.ended)
		maps.DeleteFunc(f.q.late, func(_ string, late *flight[T]) bool { return late == f })
	}
}
