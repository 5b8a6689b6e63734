// Package oldbatch sends the calls of many goroutines together.
package oldbatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
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

// A Queue sends calls in batches. The caller that finds the queue idle sends its calls at once.
// Calls that come meanwhile wait and go together as the next batch; the first of their callers, the
// leader, sends it. The more calls there are, the fewer batches each one costs, and a lone call
// needs no other goroutine.
//
// One batch is sent at a time, and calls are sent in the order in which they come. A batch that
// takes longer than StuckAfter is slow: the next one is sent beside it, without the calls that have
// a name of the slow batch. These wait until it ends or has taken Bound, so that calls of one name
// keep their order. Solo gives up the order.
//
// The fields must not be changed after the first Do.
type Queue[T any] struct {
	// Send sends a batch, and returns when it is complete or its deadline has passed. It records
	// the results in the calls. It uses only the values of ctx, which are those of the caller if
	// the batch has one caller.
	Send func(ctx context.Context, deadline time.Time, calls []T)

	// SendSolo sends the calls of one caller that need not wait for a batch (see Solo), as Send
	// does. Nil means Send.
	SendSolo func(ctx context.Context, deadline time.Time, calls []T)

	// Name returns the name of a call. Calls with one name keep their order beside a slow batch;
	// those with the name "" do not. All calls of a DoAll have one name. Nil means "" for all.
	Name func(call T) string

	// Max is the greatest number of calls in a batch. A Do with more calls has a batch of its own.
	Max int

	// Bound limits a batch, and a caller whose context has no deadline.
	Bound time.Duration

	// StuckAfter is how long a batch holds up calls of all names. 0 means Bound.
	StuckAfter time.Duration

	// MinInline is the time that a leader must have left to run Send on its own goroutine. The
	// batch then ends at the leader's deadline if that is before Bound; so a leader with the calls
	// of others needs nine tenths of Bound. A leader with less time runs Send on another goroutine,
	// which has until Bound, and leaves at its own deadline. 0 means that Send always has another
	// goroutine, as one that may exceed its deadline needs.
	MinInline time.Duration

	// Solo is how many callers may each send their own calls, beside each other, before calls wait
	// for a batch. Batches end when a batch and the callers behind it are half as many.
	Solo int

	mu      sync.Mutex
	state   state
	solo    int             // callers that send their own calls
	waiting []*waiter[T]    // callers for the next batch, in the order in which they came
	leader  *waiter[T]      // of the batch in flight, in state sending
	slow    []*waiter[T]    // leaders of the slow batches that have not taken Bound, by sentAt
	behind  []*waiter[T]    // callers that wait for a slow batch to end, in their order
	ahead   map[string]bool // the names of the calls in slow batches
	timer   *time.Timer     // calls advance; nil if it was never needed
	timerAt time.Time       // when it does; zero if it is not set

	waiters sync.Pool // of *waiter[T] that nothing refers to any more
}

// A state is that of the next batch. Slow batches and solo callers may be in flight in all states.
type state uint8

const (
	idle    state = iota // waiting is empty
	leading              // waiting[0] has the signal to send the next batch
	sending              // the batch of Queue.leader is in flight, and is not slow yet
)

// A waiter is one call of Do or DoAll.
type waiter[T any] struct {
	ctx      context.Context
	deadline time.Time
	calls    []T
	err      error // what Do returns, once wake has done

	// Set for the leader of a batch in flight, and guarded by Queue.mu.
	batch  []*waiter[T]
	sentAt time.Time

	// A waiter is used again: these parts would cost more than the rest of the queue.
	one   [1]T          // room for calls
	self  [1]*waiter[T] // room for batch
	wake  chan signal   // has room for lead and one other signal
	timer *time.Timer   // nil if it was never needed
}

type signal uint8

const (
	done signal = iota
	lead        // send the next batch
	solo        // send your own calls
)

// Do has a call sent, and returns nil when it is complete. It returns at the deadline of ctx at the
// latest, or after Bound if there is none, with an error that matches [ErrNotSent] or [ErrNoReply]:
// the results of the call must not be read then. A call is not sent after the end of ctx, but Do
// waits for one that is sent, canceled or not. If Send panics, so does the Do that runs it, and the
// other callers of the batch have ErrNoReply.
func (q *Queue[T]) Do(ctx context.Context, call T) error { return q.do(ctx, call, nil) }

// DoAll is like Do for one or more calls, which are in one batch, in this order.
func (q *Queue[T]) DoAll(ctx context.Context, calls []T) error {
	var none T
	return q.do(ctx, none, calls)
}

// do makes calls, or one call if calls is nil.
func (q *Queue[T]) do(ctx context.Context, call T, calls []T) error {
	w, _ := q.waiters.Get().(*waiter[T])
	if w == nil {
		w = &waiter[T]{wake: make(chan signal, 2)}
		w.self[0] = w
	}
	if w.ctx, w.calls = ctx, calls; calls == nil {
		w.one[0] = call
		w.calls = w.one[:]
	}
	if err := q.send(w); err != nil {
		return err // The queue may still refer to w.
	}
	var none T
	w.ctx, w.calls, w.batch, w.one[0] = nil, nil, nil, none
	q.waiters.Put(w)
	return nil
}

// send has the calls of w sent, and returns when they are complete or its time is up.
func (q *Queue[T]) send(w *waiter[T]) error {
	now := time.Now()
	var ok bool
	if w.deadline, ok = w.ctx.Deadline(); !ok {
		w.deadline = now.Add(q.Bound)
	}
	if err := w.endReason(now); err != nil {
		return err
	}
	q.mu.Lock()
	q.advance(now)
	switch {
	case q.state != idle || q.isBehind(w):
		q.enqueue(w)
		q.setTimer()
		q.mu.Unlock()
	case q.solo < q.Solo:
		q.solo++
		q.mu.Unlock()
		return q.sendSolo(w)
	case q.sendBatch(w.self[:], now):
		return nil
	}
	return q.wait(w, w.deadline.Sub(now))
}

// Waiting returns how many callers wait for the next batch.
func (q *Queue[T]) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// wait returns when the calls are complete, or at the deadline. Meanwhile it sends the next batch
// if w is named the leader.
func (q *Queue[T]) wait(w *waiter[T], left time.Duration) error {
	if w.timer == nil {
		w.timer = time.NewTimer(left)
	} else {
		w.timer.Reset(left)
	}
	defer w.timer.Stop()
	for {
		select {
		case got := <-w.wake:
			switch got {
			case done:
				return w.err
			case solo:
				return q.sendSolo(w)
			}
			q.mu.Lock()
			now := time.Now()
			if err := w.endReason(now); err != nil {
				q.waiting = q.waiting[1:]
				q.nameLeader()
				q.mu.Unlock()
				return err
			}
			if q.sendBatch(q.take(now), now) {
				return nil
			}
		case <-w.timer.C:
			if err := q.leave(w); err != nil {
				return err
			}
		}
	}
}

// leave ends a wait at its deadline. It returns nil if w has a signal: its calls have just ended.
func (q *Queue[T]) leave(w *waiter[T]) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, w); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		if i == 0 && q.state == leading {
			q.nameLeader()
		}
	} else if i := slices.Index(q.behind, w); i >= 0 {
		q.behind = slices.Delete(q.behind, i, i+1)
	} else if len(w.wake) > 0 {
		return nil
	} else {
		return fmt.Errorf("%w (%w)", context.DeadlineExceeded, ErrNoReply)
	}
	return fmt.Errorf("%w (%w)", context.DeadlineExceeded, ErrNotSent)
}

// advance does what is due: a batch that has taken StuckAfter is slow, and one that has taken Bound
// holds up nothing. The caller holds q.mu.
func (q *Queue[T]) advance(now time.Time) {
	changed := false
	if q.state == sending && now.Sub(q.leader.sentAt) >= cmp.Or(q.StuckAfter, q.Bound) {
		q.state, changed = idle, true
		if q.Name != nil {
			q.slow = append(q.slow, q.leader)
		}
	}
	for len(q.slow) > 0 && now.Sub(q.slow[0].sentAt) >= q.Bound {
		q.slow, changed = slices.Delete(q.slow, 0, 1), true
	}
	if changed {
		q.requeue()
	}
}

// requeue divides the callers that wait anew, after a change of q.slow. No name is in both waiting
// and behind, so each keeps its order. The caller holds q.mu.
func (q *Queue[T]) requeue() {
	q.ahead = map[string]bool{}
	for _, leader := range q.slow {
		for _, w := range leader.batch {
			q.ahead[q.Name(w.calls[0])] = true
		}
	}
	delete(q.ahead, "")
	callers := append(q.waiting, q.behind...)
	q.waiting, q.behind = nil, nil
	for _, w := range callers {
		q.enqueue(w)
	}
	if q.state == idle {
		q.nameLeader()
	}
	q.setTimer()
}

// enqueue makes w wait for the next batch, or behind a slow one. The caller holds q.mu.
func (q *Queue[T]) enqueue(w *waiter[T]) {
	if q.isBehind(w) {
		q.behind = append(q.behind, w)
	} else {
		q.waiting = append(q.waiting, w)
	}
}

// isBehind reports whether w must wait for a slow batch to end. The caller holds q.mu.
func (q *Queue[T]) isBehind(w *waiter[T]) bool {
	return len(q.ahead) > 0 && q.ahead[q.Name(w.calls[0])]
}

// setTimer sets the timer for the next time when callers that wait need advance. The caller holds
// q.mu.
func (q *Queue[T]) setTimer() {
	var at time.Time
	if q.state == sending && len(q.waiting) > 0 {
		at = q.leader.sentAt.Add(cmp.Or(q.StuckAfter, q.Bound))
	}
	if len(q.behind) > 0 {
		if end := q.slow[0].sentAt.Add(q.Bound); at.IsZero() || end.Before(at) {
			at = end
		}
	}
	if at.IsZero() || !q.timerAt.IsZero() && !at.Before(q.timerAt) {
		return
	}
	q.timerAt = at
	if q.timer == nil {
		q.timer = time.AfterFunc(time.Until(at), func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.timerAt = time.Time{}
			q.advance(time.Now())
			q.setTimer()
		})
	} else {
		q.timer.Reset(time.Until(at))
	}
}

// nameLeader makes the first waiter the leader, if there is one. The caller holds q.mu.
func (q *Queue[T]) nameLeader() {
	q.state = idle
	if len(q.waiting) > 0 {
		q.state = leading
		q.waiting[0].wake <- lead
	}
}

// take removes the next batch from q.waiting. It ends calls that have been given up, except that of
// the leader, which is the first: the leader has checked it, and its context may end at any time.
// The caller holds q.mu.
func (q *Queue[T]) take(now time.Time) []*waiter[T] {
	var taken, size int
	batch := q.waiting[:0]
	for i, w := range q.waiting {
		if i > 0 {
			if w.err = w.endReason(now); w.err != nil {
				w.wake <- done
				taken++
				continue
			}
		}
		if size += len(w.calls); size > q.Max && i > 0 {
			break
		}
		batch = append(batch, w)
		taken++
	}
	// The next batch will be about as large.
	q.waiting = append(make([]*waiter[T], 0, len(q.waiting)), q.waiting[taken:]...)
	return batch
}

// sendBatch sends a batch, whose first caller is the leader, and reports whether it has ended: if
// not, another goroutine sends it. The caller holds q.mu, which sendBatch unlocks.
func (q *Queue[T]) sendBatch(batch []*waiter[T], now time.Time) bool {
	leader := batch[0]
	leader.batch, leader.sentAt = batch, now
	q.state, q.leader = sending, leader
	q.setTimer()
	q.mu.Unlock()
	deadline, left := now.Add(q.Bound), leader.deadline.Sub(now)
	if q.MinInline == 0 || left < q.MinInline || len(batch) > 1 && left < q.Bound*9/10 {
		go q.run(batch, deadline, true)
		return false
	}
	if left < q.Bound {
		deadline = leader.deadline
	}
	q.run(batch, deadline, false)
	return true
}

// run sends a batch, wakes its callers, and names the next leader. It wakes the leader of the batch
// only if another goroutine has sent it.
func (q *Queue[T]) run(batch []*waiter[T], deadline time.Time, wakeLeader bool) {
	leader := batch[0]
	ctx, calls := leader.ctx, leader.calls
	if len(batch) > 1 {
		ctx, calls = context.Background(), make([]T, 0, len(batch))
		for _, w := range batch {
			calls = append(calls, w.calls...)
		}
	}
	err := ErrNoReply // if Send panics
	defer func() {
		q.mu.Lock()
		few := len(batch)+len(q.waiting) <= q.Solo/2
		if len(batch) > 1 {
			leader.batch = batch[:1] // The others are complete, and the waiters may be used again.
			q.mu.Unlock()
			for _, w := range batch[1:] {
				w.err = err
				w.wake <- done
			}
			// The callers make their next calls at once. Letting them run before the queue can be
			// idle makes fewer and larger batches.
			runtime.Gosched()
			q.mu.Lock()
		}
		switch i := slices.Index(q.slow, leader); {
		case i >= 0:
			q.slow = slices.Delete(q.slow, i, i+1)
			q.requeue()
		case q.state != sending || q.leader != leader: // It has taken Bound.
		case few && len(q.waiting) <= q.Solo/2: // The callers that have run meanwhile count, too.
			q.state = idle
			q.solo += len(q.waiting)
			for _, w := range q.waiting {
				w.wake <- solo
			}
			q.waiting = nil
		default:
			q.nameLeader()
		}
		q.mu.Unlock()
		if wakeLeader {
			leader.err = err
			leader.wake <- done
		}
	}()
	q.Send(ctx, deadline, calls)
	err = nil
}

// sendSolo sends the calls of one caller beside those of others.
func (q *Queue[T]) sendSolo(w *waiter[T]) error {
	defer func() {
		q.mu.Lock()
		q.solo--
		q.mu.Unlock()
	}()
	now := time.Now()
	if err := w.endReason(now); err != nil {
		return err
	}
	deadline := now.Add(q.Bound)
	if w.deadline.Before(deadline) {
		deadline = w.deadline
	}
	send := q.SendSolo
	if send == nil {
		send = q.Send
	}
	send(w.ctx, deadline, w.calls)
	return nil
}

// endReason returns why the calls must not be sent any more.
func (w *waiter[T]) endReason(now time.Time) error {
	if err := w.ctx.Err(); err != nil {
		return fmt.Errorf("%w (%w)", err, ErrNotSent)
	}
	if !now.Before(w.deadline) {
		return fmt.Errorf("%w (%w)", context.DeadlineExceeded, ErrNotSent)
	}
	return nil
}
