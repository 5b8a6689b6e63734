// Package batch sends the calls of many goroutines together.
package batch

import (
	"context"
	"errors"
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
// ended. The more calls there are, the fewer batches each one costs.
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

	// MinInline is the time that a caller must have left to run Send on its own goroutine. 0 means
	// that Send may exceed the deadline of its context, and has another goroutine always.
	MinInline time.Duration

	mu      sync.Mutex
	flying  int                      // batches that count
	waiting []*waiter[T]             // in the order in which they came
	late    map[string]chan struct{} // the batches that were not awaited, by the names of their calls
}

// A waiter is one Do.
type waiter[T any] struct {
	calls []T
	sent  bool          // its batch was sent
	done  chan struct{} // closed when its batch has ended; set when it is sent
	ready chan struct{} // closed when it is sent
}

// Do has calls sent together, and returns nil when they are complete. It returns at the deadline of
// ctx at the latest, with an error that matches [ErrNotSent] or [ErrNoReply]: the results must not be
// read then. A call is not sent after the end of ctx. One that is sent is awaited until its deadline,
// canceled or not.
func (q *Queue[T]) Do(ctx context.Context, calls ...T) error {
	deadline := time.Now().Add(q.Bound)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	left := time.Until(deadline)
	name := q.Name(calls[0])
	q.mu.Lock()
	for previous := q.late[name]; previous != nil; previous = q.late[name] {
		q.mu.Unlock()
		select {
		case <-previous:
			q.arrive(name, previous)
		case <-ctx.Done():
			return errors.Join(ErrNotSent, ctx.Err())
		case <-time.After(time.Until(deadline)):
			return errors.Join(ErrNotSent, context.DeadlineExceeded)
		}
		q.mu.Lock()
	}
	if q.flying < q.InFlight && len(q.waiting) == 0 && q.MinInline > 0 && left >= q.MinInline {
		q.flying++
		q.mu.Unlock()
		q.send(context.WithoutCancel(ctx), deadline, calls)
		return nil
	}
	w := &waiter[T]{calls: calls, ready: make(chan struct{})}
	q.waiting = append(q.waiting, w)
	q.sendWaiting()
	q.mu.Unlock()
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-w.ready:
	case <-ctx.Done():
	case <-timer.C:
		timer.Reset(0) // It may have been sent meanwhile: the time is up for the reply, too.
	}
	q.mu.Lock()
	if !w.sent {
		for i, other := range q.waiting {
			if other == w {
				q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
				break
			}
		}
		q.mu.Unlock()
		if ctx.Err() != nil {
			return errors.Join(ErrNotSent, ctx.Err())
		}
		return errors.Join(ErrNotSent, context.DeadlineExceeded)
	}
	q.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-timer.C:
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-w.done:
		return nil
	default:
	}
	if name != "" {
		if q.late == nil {
			q.late = map[string]chan struct{}{}
		}
		q.late[name] = w.done
		time.AfterFunc(q.Bound, func() { q.arrive(name, w.done) })
	}
	return errors.Join(ErrNoReply, context.DeadlineExceeded)
}

// arrive forgets a name that was left behind.
func (q *Queue[T]) arrive(name string, done chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.late[name] == done {
		delete(q.late, name)
	}
}

// sendWaiting sends what waits, as far as there is room. The caller holds q.mu.
func (q *Queue[T]) sendWaiting() {
	for q.flying < q.InFlight && len(q.waiting) > 0 {
		var calls []T
		done := make(chan struct{})
		n := 0
		for _, w := range q.waiting {
			if n > 0 && len(calls)+len(w.calls) > q.Max {
				break
			}
			calls, n = append(calls, w.calls...), n+1
			w.sent, w.done = true, done
			close(w.ready)
		}
		q.waiting = append([]*waiter[T](nil), q.waiting[n:]...)
		q.flying++
		go func() {
			defer close(done)
			q.send(context.Background(), time.Now().Add(q.Bound), calls)
		}()
	}
}

// send sends a batch that has been counted, and lets what waits follow it.
func (q *Queue[T]) send(ctx context.Context, deadline time.Time, calls []T) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	counted := true
	leave := func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if counted {
			counted = false
			q.flying--
			q.sendWaiting()
		}
	}
	if q.StuckAfter > 0 {
		defer time.AfterFunc(q.StuckAfter, leave).Stop()
	}
	defer func() {
		cancel()
		leave()
	}()
	q.Send(ctx, calls)
}
