package quorumstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A fanOut is one request to each node, all at the same time. The goroutine with a reply counts it,
// so that the caller wakes once, when the replies decide. The requests run on after that, until
// they are answered or their context ends.
type fanOut[T any] struct {
	s        *engine
	timeout  time.Duration   // how long the caller waits
	deadline time.Time       // of the requests: after twice the timeout
	caller   context.Context // for its values alone
	ctx      context.Context // of the requests: it ends at their deadline, with Close, and with the last reply
	cancel   context.CancelFunc
	decided  chan struct{} // closed when no more replies are counted

	// count is called with the reply of each node, one at a time, and reports whether the replies
	// decide. It is set before the requests are sent, or is nil.
	count func(node int, value T, err error) (decided bool)

	// late is called with the replies that are not counted. It may be nil.
	late func(node int, value T)

	mu      sync.Mutex
	values  []T     // of each node that has replied
	errs    []error // of each node, errNoReply before its reply is counted
	missing int     // replies to come
	grace   *time.Timer
}

// errNoReply is the vote of a node without a reply at the end of its time, or when the others had
// decided.
var errNoReply = errors.New("no reply yet")

// newFanOut prepares a request to all nodes.
func newFanOut[T any](ctx context.Context, s *engine, timeout time.Duration) *fanOut[T] {
	f := &fanOut[T]{
		s:        s,
		timeout:  timeout,
		deadline: time.Now().Add(2 * timeout),
		caller:   ctx,
		decided:  make(chan struct{}),
		values:   make([]T, len(s.nodes)),
		errs:     make([]error, len(s.nodes)),
		missing:  len(s.nodes),
	}
	for i := range f.errs {
		f.errs[i] = errNoReply
	}
	f.ctx, f.cancel = s.requestContext(ctx, f.deadline)
	return f
}

// send sends a request to each node, on a goroutine of its own.
func (f *fanOut[T]) send(request func(context.Context, *node) (T, error)) *fanOut[T] {
	for _, n := range f.s.nodes {
		f.s.beginRequest(n)
		go func() {
			var value T
			err := n.call(f.ctx, func() (err error) {
				value, err = request(f.ctx, n)
				return err
			})
			f.receive(n.index, value, err)
			f.s.endRequest(n)
		}()
	}
	return f
}

// receive counts the reply of a node.
func (f *fanOut[T]) receive(node int, value T, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.missing--
	if !f.isDecided() {
		f.values[node], f.errs[node] = value, err
		if f.count != nil && f.count(node, value, err) || f.missing == 0 {
			f.stopCounting()
		}
	} else if f.late != nil {
		f.late(node, value)
	}
	if f.missing == 0 {
		f.cancel()
	}
}

// wait blocks until the replies decide, or no more are to come, or the time is over. It ends at the
// deadline of ctx. It ignores cancellation, since a context of package holdfast needs a timer for
// its Done channel. The error is the end of ctx or of the Store. Nothing is counted after wait has
// returned.
func (f *fanOut[T]) wait(ctx context.Context) error {
	timeout := f.timeout
	var timeoutErr error // nil for the end of our own time
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < timeout {
		timeout, timeoutErr = time.Until(deadline), context.DeadlineExceeded
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	var err error
	select {
	case <-f.decided:
		return nil
	case <-timer.C:
		err = timeoutErr
	case <-f.s.closing.Done():
		err = driver.ErrClosed
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isDecided() { // at that moment
		return nil
	}
	f.stopCounting()
	return err
}

// graceAfter ends the wait for further replies after d. It is for use in count.
func (f *fanOut[T]) graceAfter(d time.Duration) {
	if f.grace == nil {
		f.grace = time.AfterFunc(d, f.giveUp)
	}
}

// giveUp ends the wait for further replies.
func (f *fanOut[T]) giveUp() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopCounting()
}

// votes returns the votes of the nodes for an Error.
func (f *fanOut[T]) votes(describe func(value T) Vote) func(n *node) Vote {
	return func(n *node) Vote {
		if err := f.errs[n.index]; err != nil {
			return Vote{Err: err}
		}
		return describe(f.values[n.index])
	}
}

// isDecided reports whether no more replies are counted.
func (f *fanOut[T]) isDecided() bool {
	select {
	case <-f.decided:
		return true
	default:
		return false
	}
}

// stopCounting ends the count. The caller holds f.mu.
func (f *fanOut[T]) stopCounting() {
	if f.isDecided() {
		return
	}
	close(f.decided)
	if f.grace != nil {
		f.grace.Stop()
	}
}

// requestContext returns a context for requests to nodes. It has the values of another one, and
// ends at a deadline of its own, or when Close has given up waiting.
func (s *engine) requestContext(values context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	return context.WithDeadline(contextWithValues{s.alive, values}, deadline)
}

// A contextWithValues is a context with the values of another one.
type contextWithValues struct {
	context.Context
	values context.Context
}

// Value implements [context.Context]. Its own values come first: package context finds there which
// context ends this one.
func (c contextWithValues) Value(key any) any {
	if value := c.Context.Value(key); value != nil {
		return value
	}
	return c.values.Value(key)
}
