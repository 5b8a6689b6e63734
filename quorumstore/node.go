package quorumstore

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A node is one of the stores of a quorum.
type node struct {
	driver.Store
	index int
	kind  string // Guarantees.Store
	began time.Time

	pending atomic.Int64 // acquisitions and releases under way, or to be sent again
	heard   atomic.Int64 // when it last replied, or got a request after an idle time
	replied atomic.Bool  // it has replied at all
}

// silentLimit bounds what is pending for a node that does not reply. Its return is noticed by that.
const silentLimit = 256

var (
	errSilent  = driver.NotApplied(errors.New("it has left many requests unanswered, and gets no more"))
	errNoReply = errors.New("no reply yet") // at the end of its time, or when the others had decided
)

// addPending counts what is pending for the node.
func (n *node) addPending(by int64) {
	if n.pending.Add(by) == 1 && by > 0 {
		n.heard.Store(n.now())
	}
}

// isSilent reports whether many requests wait for a reply of the node, which has not come for a time.
func (n *node) isSilent(timeout time.Duration) bool {
	return n.pending.Load() > silentLimit && n.now()-n.heard.Load() > int64(timeout)
}

func (n *node) now() int64 { return int64(time.Since(n.began)) }

// send sends a request to a node. It ends after twice the Timeout, whatever becomes of ctx, whose
// values it has: the outcome is needed when the caller has gone on, too.
func send[T any](s *Store, ctx context.Context, n *node, request func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*s.timeout)
	defer cancel()
	value, err := request(ctx)
	if err == nil || ctx.Err() == nil {
		n.heard.Store(n.now())
		n.replied.Store(true)
	}
	return value, err
}

// A ballot has the replies of the nodes to one request.
type ballot[T any] struct {
	s      *Store
	values []T
	errs   []error // errNoReply for those that have not replied
	cut    error   // the end of the caller's time, if that ended the wait
}

// The results of the function count of ask: how long to wait for further replies.
const (
	noLonger = time.Duration(0)
	asBefore = time.Duration(-1)
)

// ask sends a request to each node, on a goroutine of its own, and calls count after each reply, with
// the index of its node. It returns when count wants no more of them, or at the end of the timeout or
// the deadline of ctx. It ignores a cancellation before. A request without a reply goes on. Without
// count, ask does not wait.
func ask[T any](
	s *Store, ctx context.Context, timeout time.Duration, request func(n *node) (T, error),
	count func(b *ballot[T], node int) (wait time.Duration),
) *ballot[T] {
	type reply struct {
		node  int
		value T
		err   error
	}
	b := &ballot[T]{s: s, values: make([]T, len(s.nodes)), errs: make([]error, len(s.nodes))}
	replies := make(chan reply, len(s.nodes))
	for i, n := range s.nodes {
		b.errs[i] = errNoReply
		go func() {
			value, err := request(n)
			replies <- reply{i, value, err}
		}()
	}
	if count == nil {
		return b
	}
	end := time.Now().Add(timeout)
	deadline, hasDeadline := ctx.Deadline()
	if hasDeadline && deadline.Before(end) {
		end = deadline
	}
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	for range s.nodes {
		select {
		case r := <-replies:
			b.values[r.node], b.errs[r.node] = r.value, r.err
			wait := count(b, r.node)
			if wait == noLonger {
				return b
			}
			if wait > 0 && time.Until(end) > wait {
				end = time.Now().Add(wait)
				timer.Reset(wait)
			}
		case <-timer.C:
			if hasDeadline && end.Equal(deadline) {
				b.cut = context.DeadlineExceeded
			}
			return b
		}
	}
	return b
}
