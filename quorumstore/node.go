package quorumstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A node is one of the stores of a quorum.
type node struct {
	driver.Store
	index int

	pending atomic.Int64 // acquisitions and releases under way, or to be sent again
	silent  atomic.Bool  // the last request that has ended had no reply
}

// pendingLimit bounds what is pending for a node that does not reply, or confirms no release.
const pendingLimit = 256

var (
	errSilent  = driver.NotApplied(errors.New("it has left many requests unanswered, and gets no more"))
	errNoReply = errors.New("no reply yet") // at the end of its time, or when the others had decided
)

// A ballot is a request to all nodes, with their replies.
type ballot[T any] struct {
	s       *Store
	values  []T
	errs    []error // errNoReply for those that have not replied
	replies chan reply[T]
	hurry   <-chan time.Time // ends the wait for replies; see within
	cut     error            // the error of the caller's context, if that ended the wait
}

type reply[T any] struct {
	node  int
	value T
	err   error
}

// ask sends a request to each node, on a goroutine of its own. A request keeps the values of ctx
// and ignores its end. It ends after twice the Timeout, so that its outcome becomes known.
func ask[T any](s *Store, ctx context.Context, request func(context.Context, *node) (T, error)) *ballot[T] {
	size := len(s.nodes)
	b := &ballot[T]{s: s, values: make([]T, size), errs: make([]error, size), replies: make(chan reply[T], size)}
	ctx, cancel := s.limit(ctx)
	var ended atomic.Int64
	for i, n := range s.nodes {
		b.errs[i] = errNoReply
		go func() {
			value, err := request(ctx, n)
			b.replies <- reply[T]{i, value, err}
			if ended.Add(1) == int64(size) {
				cancel()
			}
		}()
	}
	return b
}

func (s *Store) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 2*s.timeout)
}

// noteReply records whether a node has replied to a request, and how long that has taken.
func (s *Store) noteReply(ctx context.Context, n *node, began time.Time, err error) {
	silent := err != nil && ctx.Err() != nil
	if n.silent.Store(silent); !silent {
		s.slowest.Store(max(s.slowest.Load(), int64(time.Since(began)))) // One beside it may get lost.
	}
}

// await waits for the replies, and yields the index of the node after each of them, until the
// timeout or the end of ctx. A reply that has come counts, also if the time is over when this
// goroutine gets to it.
func (b *ballot[T]) await(ctx context.Context, timeout time.Duration) iter.Seq[int] {
	return func(yield func(int) bool) {
		over := time.After(timeout)
		for range b.values {
			var r reply[T]
			select {
			case r = <-b.replies:
			default:
				select {
				case r = <-b.replies:
				case <-over:
					return
				case <-b.hurry:
					return
				case <-ctx.Done():
					b.cut = ctx.Err()
					return
				}
			}
			if b.values[r.node], b.errs[r.node] = r.value, r.err; !yield(r.node) {
				return
			}
		}
	}
}

// tally returns how many nodes had what a request ends, and how many certainly had not.
func (b *ballot[T]) tally(had func(T) bool) (with, without int) {
	for i, value := range b.values {
		if b.errs[i] == nil && had(value) {
			with++
		} else if b.errs[i] == nil {
			without++
		}
	}
	return with, without
}

// within has the wait for further replies end after d. The first call counts.
func (b *ballot[T]) within(d time.Duration) {
	if b.hurry == nil {
		b.hurry = time.After(d)
	}
}

// A majorityError means that no majority could be had for a request. It lists the replies of all
// nodes. It matches their errors only where these hold for the whole: a permanent one (see
// driver.Permanent) if so many nodes return such errors that trying again is in vain, and
// driver.ErrNotApplied if nothing was changed on any node.
type majorityError struct {
	text   string
	causes []error
}

func (e *majorityError) Error() string   { return e.text }
func (e *majorityError) Unwrap() []error { return e.causes }

// err returns the error of a request.
func (b *ballot[T]) err(reason string) *majorityError {
	var text strings.Builder
	fmt.Fprintf(&text, "%s (%d of %d nodes are needed)", reason, b.s.need, len(b.s.nodes))
	var permanent []error
	unchanged := true
	for i, n := range b.s.nodes {
		err := b.errs[i]
		if driver.Permanent(err) {
			permanent = append(permanent, err)
		}
		unchanged = unchanged && driver.IsNotApplied(err)
		said := any(err)
		if err == nil {
			said = b.values[i]
		}
		switch reply := said.(type) {
		case driver.Result:
			if said = reply.Held; reply.Granted {
				said = fmt.Sprintf("granted token %d", reply.Token)
			}
		case []driver.Entry:
			said = fmt.Sprintf("%d answers", len(reply))
		case []driver.Record:
			if len(reply) > 1 {
				said = fmt.Sprintf("%d holds", len(reply))
			}
		}
		fmt.Fprintf(&text, "; node %d (%s): %v", i+1, n.Guarantees().Store, said)
	}
	e := &majorityError{text: text.String()}
	switch {
	case b.cut != nil:
		e.causes = []error{b.cut}
	case len(permanent) > b.s.minority():
		e.causes = permanent
	case unchanged:
		e.causes = []error{driver.ErrNotApplied}
	}
	return e
}
