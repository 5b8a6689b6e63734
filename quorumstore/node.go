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
	starter driver.Starter // the same, nil if it cannot start requests
	index   int
	can     driver.Guarantees
	timeout time.Duration
	began   time.Time

	busy     atomic.Int64 // what is under way to it, or waits for its turn
	asked    atomic.Int64 // requests under way
	answered atomic.Int64 // when it last answered, or was asked after a rest
	mute     atomic.Bool  // its last request ended without an answer
	repeats  atomic.Int64 // releases that are to be sent again
}

// Bounds on what is spent on a node that does not answer.
const (
	// silentLimit is how many requests may be under way to a node while it is
	// silent. They are needed to see it come back, and to give back what it may
	// have granted.
	silentLimit = 256

	// repeatLimit is how many releases wait to be sent again to one node.
	repeatLimit = 256
)

var errSilent = notApplied{errors.New("it has left many requests unanswered and is not asked")}

// ask makes one request to a node. It returns when the node does: those who
// cannot wait for that run it on a goroutine of its own.
func ask[T any](ctx context.Context, n *node, request func(context.Context) (T, error)) (T, error) {
	var none T
	if n.refuses() {
		return none, errSilent
	}
	n.ask()
	value, err := request(ctx)
	n.answer(ctx, err)
	return value, err
}

// startable reports whether the node can be asked without waiting for it.
func (n *node) startable() bool { return n.starter != nil && !n.refuses() }

// refuses reports whether too many requests to the node are unanswered.
func (n *node) refuses() bool { return n.asked.Load() >= silentLimit && n.silent() }

// ask and answer note a request with this context and its end.
func (n *node) ask() {
	if n.asked.Add(1) == 1 {
		n.answered.Store(n.now())
	}
}

func (n *node) answer(ctx context.Context, err error) {
	if err != nil && ctx.Err() != nil {
		n.mute.Store(true)
	} else {
		n.mute.Store(false)
		n.answered.Store(n.now())
	}
	n.asked.Add(-1)
}

// silent reports whether the node has left requests unanswered for the time
// that it is given.
func (n *node) silent() bool {
	return n.mute.Load() || n.asked.Load() > 0 && n.now()-n.answered.Load() > int64(n.timeout)
}

func (n *node) now() int64 { return int64(time.Since(n.began)) }
