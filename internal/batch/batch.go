// Package batch sends the calls of many goroutines together.
package batch

import (
	"context"
	"errors"
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
// takes longer than StuckAfter is left alone, and the next one is sent beside it: the order holds
// within StuckAfter only. Solo gives up the order.
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

	// Max is the greatest number of calls in a batch. A Do with more calls has a batch of its own.
	Max int

	// Bound limits a batch, and a caller whose context has no deadline.
	Bound time.Duration

	// StuckAfter is how long a batch holds up the next one. 0 means Bound.
	StuckAfter time.Duration

	// MinInline is the time that a leader must have left to run Send on its own goroutine. The
	// batch then ends at the leader's deadline if that is before Bound. A leader with less time
	// runs Send on another goroutine, which has until Bound, and leaves at its own deadline. 0
	// means that Send always has another goroutine, as one that may exceed its deadline needs.
	MinInline time.Duration

	// Solo is how many callers may each send their own calls, beside each other, before calls wait
	// for a batch. Batches end when a batch and the callers behind it are half as many.
	Solo int

	mu      sync.Mutex
	solo    int          // callers that send their own calls
	waiting []*waiter[T] // callers with calls that are not sent, in the order in which they came
	busy    bool         // there is a leader: the caller of the current batch, or waiting[0]
	sentAt  time.Time    // of the current batch; zero while the leader is waiting[0]
	batch   uint64       // the number of the current batch

	waiters sync.Pool // of *waiter[T] that nothing refers to any more
}

// A waiter is one call of Do or DoAll.
type waiter[T any] struct {
	ctx      context.Context
	deadline time.Time
	calls    []T
	err      error // what Do returns, once wake has done

	// A waiter is used again: these parts would cost more than the rest of the queue.
	one   [1]T          // room for calls
	self  [1]*waiter[T] // room for a batch
	wake  chan signal   // nil if it was never needed; has room for lead and one other signal
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
func (q *Queue[T]) Do(ctx context.Context, call T) error {
	w := q.newWaiter(ctx)
	w.one[0] = call
	return q.do(w, w.one[:])
}

// DoAll is like Do for several calls, which are in one batch, in this order.
func (q *Queue[T]) DoAll(ctx context.Context, calls []T) error {
	return q.do(q.newWaiter(ctx), calls)
}

func (q *Queue[T]) newWaiter(ctx context.Context) *waiter[T] {
	w, _ := q.waiters.Get().(*waiter[T])
	if w == nil {
		w = &waiter[T]{}
		w.self[0] = w
	}
	w.ctx = ctx
	return w
}

func (q *Queue[T]) do(w *waiter[T], calls []T) error {
	w.calls = calls
	if err := q.send(w); err != nil {
		return err // A batch may still refer to w.
	}
	var none T
	w.ctx, w.calls, w.one[0] = nil, nil, none
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
	switch {
	case !q.busy && q.solo < q.Solo:
		q.solo++
		q.mu.Unlock()
		return q.sendSolo(w)
	case len(q.waiting) == 0 && (!q.busy || q.isStuck(now)):
		if q.sendBatch(w.self[:], now) {
			return w.err
		}
		return q.wait(w, w.deadline.Sub(now))
	}
	w.makeWake()
	q.waiting = append(q.waiting, w)
	if q.isStuck(now) {
		q.nameLeader()
	}
	check := q.untilCheck(w, now)
	q.mu.Unlock()
	return q.wait(w, check)
}

// Waiting returns how many callers wait for the next batch.
func (q *Queue[T]) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// wait returns when the calls are complete, or at the deadline. Meanwhile it sends the next batch
// if w is named the leader. It checks after a time whether it has to do more.
func (q *Queue[T]) wait(w *waiter[T], check time.Duration) error {
	if w.timer == nil {
		w.timer = time.NewTimer(check)
	} else {
		w.timer.Reset(check)
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
			// The callers of the last batch make their next calls at once. Letting them run first
			// makes fewer and larger batches.
			runtime.Gosched()
			q.mu.Lock()
			now := time.Now()
			if err := w.endReason(now); err != nil {
				q.waiting = q.waiting[1:]
				q.nameLeader()
				q.mu.Unlock()
				return err
			}
			if q.sendBatch(q.take(now), now) {
				return w.err
			}
			w.timer.Reset(w.deadline.Sub(now))
		case <-w.timer.C:
			check, err := q.check(w)
			if err != nil {
				return err
			}
			w.timer.Reset(check)
		}
	}
}

// check ends a wait at its deadline, and has a leader that is stuck replaced. It returns the time
// until the next check.
func (q *Queue[T]) check(w *waiter[T]) (time.Duration, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	i, expired := slices.Index(q.waiting, w), !now.Before(w.deadline)
	switch {
	case i < 0 && !expired:
		return w.deadline.Sub(now), nil
	case i < 0 && len(w.wake) > 0: // It has ended meanwhile.
		return q.Bound, nil
	case i < 0:
		return 0, errors.Join(context.DeadlineExceeded, ErrNoReply)
	case expired:
		isLeader := i == 0 && q.sentAt.IsZero()
		q.waiting = slices.Delete(q.waiting, i, i+1)
		if isLeader {
			q.nameLeader()
		}
		return 0, errors.Join(context.DeadlineExceeded, ErrNotSent)
	case q.isStuck(now):
		q.nameLeader()
	}
	return q.untilCheck(w, now), nil
}

// untilCheck returns the time until the leader is stuck, or w expires. The caller holds q.mu, and w
// is in q.waiting.
func (q *Queue[T]) untilCheck(w *waiter[T], now time.Time) time.Duration {
	left := q.stuckAfter()
	if !q.sentAt.IsZero() {
		left -= now.Sub(q.sentAt)
	}
	return min(left, w.deadline.Sub(now))
}

// isStuck reports whether the current batch takes too long. The caller holds q.mu.
func (q *Queue[T]) isStuck(now time.Time) bool {
	return q.busy && !q.sentAt.IsZero() && now.Sub(q.sentAt) >= q.stuckAfter()
}

func (q *Queue[T]) stuckAfter() time.Duration {
	if q.StuckAfter > 0 {
		return q.StuckAfter
	}
	return q.Bound
}

// nameLeader makes the first waiter the leader, if there is one. The caller holds q.mu.
func (q *Queue[T]) nameLeader() {
	q.busy, q.sentAt = len(q.waiting) > 0, time.Time{}
	if q.busy {
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
	q.busy, q.sentAt = true, now
	q.batch++
	number, deadline := q.batch, now.Add(q.Bound)
	inline := q.MinInline > 0 && leader.deadline.Sub(now) >= q.MinInline
	if !inline {
		leader.makeWake()
	}
	q.mu.Unlock()
	if !inline {
		go q.run(number, deadline, batch)
		return false
	}
	if leader.deadline.Before(deadline) {
		deadline = leader.deadline
	}
	q.run(number, deadline, batch)
	if leader.wake != nil {
		<-leader.wake // done
	}
	return true
}

// run sends a batch, names the next leader, and wakes the callers.
func (q *Queue[T]) run(number uint64, deadline time.Time, batch []*waiter[T]) {
	ctx, calls := batch[0].ctx, batch[0].calls
	if len(batch) > 1 {
		ctx, calls = context.Background(), make([]T, 0, len(batch))
		for _, w := range batch {
			calls = append(calls, w.calls...)
		}
	}
	err := ErrNoReply // if Send panics
	defer func() {
		q.mu.Lock()
		switch {
		case q.batch != number || q.sentAt.IsZero(): // It took too long, and has been replaced.
		case len(batch)+len(q.waiting) <= q.Solo/2:
			q.busy = false
			q.solo += len(q.waiting)
			for _, w := range q.waiting {
				w.wake <- solo
			}
			q.waiting = nil
		default:
			q.nameLeader()
		}
		q.mu.Unlock()
		for _, w := range batch {
			w.err = err
			if w.wake != nil {
				w.wake <- done
			}
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

func (w *waiter[T]) makeWake() {
	if w.wake == nil {
		w.wake = make(chan signal, 2)
	}
}

// endReason returns why the calls must not be sent any more.
func (w *waiter[T]) endReason(now time.Time) error {
	if err := w.ctx.Err(); err != nil {
		return errors.Join(err, ErrNotSent)
	}
	if !now.Before(w.deadline) {
		return errors.Join(context.DeadlineExceeded, ErrNotSent)
	}
	return nil
}
