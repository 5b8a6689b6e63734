package quorumstore

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// A node is one of the stores of a quorum.
type node struct {
	olddriver.Store
	index      int
	guarantees olddriver.Guarantees
	timeout    time.Duration
	began      time.Time

	otherTokens atomic.Bool // it has not renewed a hold under a token that a majority has renewed

	resends int // releases that are to be sent again; guarded by Store.mu

	pending    atomic.Int64 // requests in flight, or waiting for one that is
	lastReply  atomic.Int64 // when it last replied, or got a request after an idle time
	timedOut   atomic.Bool  // its last request ended without a reply
	hasReplied atomic.Bool  // it has replied
}

// Bounds on the effort for a node that does not reply.
const (
	// unresponsiveLimit bounds the requests to a node while it is unresponsive. They are needed to
	// notice its return, and to release what it may have granted.
	unresponsiveLimit = 256

	// resendLimit bounds the releases that wait to be sent again to one node.
	resendLimit = 256
)

var errUnresponsive = driver.NotApplied(errors.New("it has left many requests unanswered, and gets no more"))

// call makes a request to the node, unless the node is unresponsive. The
// caller calls Store.beginRequest before it and Store.endRequest after it. call does not return
// before the node does.
func (n *node) call(ctx context.Context, request func() error) error {
	if n.pending.Load() > unresponsiveLimit && n.isUnresponsive() {
		return errUnresponsive
	}
	err := request()
	timedOut := err != nil && ctx.Err() == context.DeadlineExceeded
	n.timedOut.Store(timedOut)
	if !timedOut {
		n.hasReplied.Store(true)
		n.lastReply.Store(n.now())
	}
	return err
}

// isUnresponsive reports whether the node has left requests without a reply for its timeout.
func (n *node) isUnresponsive() bool {
	return n.timedOut.Load() || n.pending.Load() > 0 && n.now()-n.lastReply.Load() > int64(n.timeout)
}

func (n *node) now() int64 { return int64(time.Since(n.began)) }
