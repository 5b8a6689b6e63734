package quorumstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A node is one of the stores of a quorum.
type node struct {
	driver.Store
	index int

	pending atomic.Int64 // requests under way, and releases to be sent again
	silent  atomic.Bool  // the last acquisition or release that has ended had no reply
}

// pendingLimit bounds what is pending for a node that does not reply, or confirms no release.
const pendingLimit = 256

var (
	errSilent  = driver.NotApplied(errors.New("it has left many requests unanswered, and gets no more"))
	errNoReply = errors.New("no reply yet") // at the end of its time, or when the others had decided
)

// A ballot is a request to all nodes, with their replies as far as they came in time.
type ballot[T any] struct {
	s      *Store
	values []T
	errs   []error // errNoReply for those that have not replied

	mu      sync.Mutex    // guards values, errs, and:
	open    int           // how many nodes have not replied
	decided chan struct{} // closed when the replies are enough
	over    bool          // further replies do not count
	until   time.Time     // the end of the wait for them
	timer   *time.Timer   // has it end
}

// ask sends a request to each node, on a goroutine of its own, and waits until the replies are
// enough, or the timeout is over. After each reply, count gets the index of the node, and reports
// whether they are. A request keeps the values of ctx and ignores its end. It ends after twice
// Options.Timeout, so that its outcome becomes known.
func ask[T any](
	s *Store, ctx context.Context, timeout time.Duration,
	request func(context.Context, *node) (T, error), count func(b *ballot[T], node int) bool,
) *ballot[T] {
	size := len(s.nodes)
	b := &ballot[T]{
		s: s, values: make([]T, size), errs: slices.Repeat([]error{errNoReply}, size),
		open: size, decided: make(chan struct{}), until: time.Now().Add(timeout), timer: time.NewTimer(timeout),
	}
	limited, cancel := s.limit(ctx)
	for i, n := range s.nodes {
		n.pending.Add(1)
		go func() {
			value, err := request(limited, n)
			n.pending.Add(-1)
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.open--; b.open == 0 {
				cancel()
			}
			if b.over {
				return
			}
			b.values[i], b.errs[i] = value, err
			if b.over = count(b, i) || b.open == 0; b.over {
				close(b.decided)
			}
		}()
	}
	select {
	case <-b.decided:
	case <-b.timer.C:
	case <-ctx.Done():
	}
	b.timer.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	return b
}

func (s *Store) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 2*s.timeout)
}

// noteReply records whether a node has replied to a request, and how long that has taken.
func (s *Store) noteReply(ctx context.Context, n *node, began time.Time, err error) {
	silent := err != nil && ctx.Err() != nil
	if n.silent.Store(silent); !silent {
		s.mu.Lock()
		s.slowest = max(s.slowest, time.Since(began))
		s.mu.Unlock()
	}
}

// within has the wait for further replies end after d, and no later than before. It is for count.
func (b *ballot[T]) within(d time.Duration) {
	if end := time.Now().Add(d); end.Before(b.until) {
		b.until = end
		b.timer.Reset(d)
	}
}

// A majorityError says that too few nodes did what was asked, with the reply of each node. It
// matches what is true of the whole request: the permanent errors (see driver.Permanent) of so many
// nodes that the others are no majority, or driver.ErrNotApplied if every node said that.
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
	case len(permanent) > b.s.minority():
		e.causes = permanent
	case unchanged:
		e.causes = []error{driver.ErrNotApplied}
	}
	return e
}
