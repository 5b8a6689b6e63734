// Package batch sends the calls of many goroutines together.
package batch

import (
	"context"
	"errors"
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
	// results in the calls.
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

// A caller is one Do.
type caller[T any] struct {
	calls    []T
	deadline time.Time
	flight   *flight[T] // since its calls are sent
	wake     chan bool  // has room for one: true to send the flight, false when it has ended
}

// A flight is a batch that is sent.
type flight[T any] struct {
	calls   []T
	callers []*caller[T]
	left    bool          // it does not count any more
	ended   chan struct{} // closed at the end
}

// Do has calls sent together, and returns nil when they are complete. It returns at the deadline of
// ctx at the latest, with an error that matches [ErrNotSent] or [ErrNoReply]: the results must not
// be read then. A call is not sent after the end of ctx. One that is sent is awaited until its
// deadline, canceled or not.
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
	c := &caller[T]{calls: calls, deadline: deadline, wake: make(chan bool, 1)}
	q.waiting = append(q.waiting, c)
	q.sendWaiting(now)
	q.mu.Unlock()
	var late <-chan time.Time
	for canceled := ctx.Done(); ; {
		select {
		case lead := <-c.wake:
			if lead && len(c.flight.callers) == 1 {
				q.send(context.WithoutCancel(ctx), deadline, c.flight)
			} else if lead {
				q.send(context.Background(), time.Now().Add(q.Bound), c.flight)
			}
			return nil
		case <-canceled:
			q.mu.Lock()
			if c.flight == nil {
				q.waiting = slices.DeleteFunc(q.waiting, func(other *caller[T]) bool { return other == c })
				q.mu.Unlock()
				return errors.Join(ErrNotSent, ctx.Err())
			}
			q.mu.Unlock()
			canceled, late = nil, time.After(time.Until(deadline))
		case <-late:
			return q.leaveBehind(name, c)
		}
	}
}

// leaveBehind gives up calls that were sent.
func (q *Queue[T]) leaveBehind(name string, c *caller[T]) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case lead := <-c.wake:
		if !lead {
			return nil
		}
		go q.send(context.Background(), time.Now().Add(q.Bound), c.flight)
	default:
	}
	if name != "" {
		if q.late == nil {
			q.late = map[string]*flight[T]{}
		}
		q.late[name] = c.flight
	}
	return errors.Join(ErrNoReply, context.DeadlineExceeded)
}

// sendWaiting has sent what waits, as far as there is room. The caller holds q.mu.
func (q *Queue[T]) sendWaiting(now time.Time) {
	for q.flying < q.InFlight && len(q.waiting) > 0 {
		f := &flight[T]{ended: make(chan struct{})}
		n := 0
		for n < len(q.waiting) && (n == 0 || len(f.calls)+len(q.waiting[n].calls) <= q.Max) {
			f.calls = append(f.calls, q.waiting[n].calls...)
			q.waiting[n].flight = f
			n++
		}
		f.callers, q.waiting = q.waiting[:n:n], q.waiting[n:]
		q.flying++
		first, need := f.callers[0], q.MinInline
		if n > 1 {
			need = q.Bound * 9 / 10
		}
		if q.MinInline > 0 && first.deadline.Sub(now) >= need {
			first.wake <- true
		} else {
			go q.send(context.Background(), now.Add(q.Bound), f)
		}
	}
}

// send sends a flight, and lets what waits follow it.
func (q *Queue[T]) send(ctx context.Context, deadline time.Time, f *flight[T]) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	leave := func() {
		if !f.left {
			f.left = true
			q.flying--
			q.sendWaiting(time.Now())
		}
	}
	if q.StuckAfter > 0 {
		defer time.AfterFunc(q.StuckAfter, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			leave()
		}).Stop()
	}
	defer func() {
		cancel()
		q.mu.Lock()
		defer q.mu.Unlock()
		leave()
		close(f.ended)
		for name, late := range q.late {
			if late == f {
				delete(q.late, name)
			}
		}
		for _, c := range f.callers {
			select {
			case c.wake <- false:
			default: // It has given up before it sent them.
			}
		}
	}()
	q.Send(ctx, f.calls)
}
