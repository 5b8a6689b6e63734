package quorumstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/quorumbatch"
)

// A node is one of the stores of a quorum.
type node struct {
	driver.Store
	index      int
	guarantees driver.Guarantees
	timeout    time.Duration
	began      time.Time

	stopNotices func()      // ends the notices of the store; nil if it is no driver.Notifier
	otherTokens atomic.Bool // it has not renewed a hold under a token that a majority has renewed

	sendBatch quorumbatch.SendBatch // of one request if the store takes no batches
	batches   bool

	// Guarded by Store.mu.
	waiting     []*nodeRequest // for the next batch
	batchBuffer []*nodeRequest // memory for the batch after it
	sender      int            // the number of the last goroutine that sends batches
	sending     bool           // it runs, and no batch of it takes too long
	sentAt      time.Time      // when its batch was sent
	stuckTimer  *time.Timer    // calls replaceSender
	resends     int            // releases that are to be sent again

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

	// After maxBatchDelay the next batch is sent beside the one in flight. No owner has requests in
	// two batches of a node, so their order does not matter.
	maxBatchDelay = 50 * time.Millisecond
)

var errUnresponsive = driver.NotApplied(errors.New("it has left many requests unanswered, and gets no more"))

// errNoMethod is the reply of a node that lacks the method for a request. Nothing was sent.
var errNoMethod = fmt.Errorf("%w by this node", driver.ErrUnsupported)

// call makes a request, or requests in a batch, to the node, unless the node is unresponsive. The
// caller calls Store.beginRequest before it and Store.endRequest after it. call does not return
// before the node does.
func (n *node) call(ctx context.Context, request func() error) error {
	if n.pending.Load() > unresponsiveLimit && n.isUnresponsive() {
		return errUnresponsive
	}
	err := request()
	if err == errNoMethod {
		return err
	}
	timedOut := err != nil && ctx.Err() == context.DeadlineExceeded
	n.timedOut.Store(timedOut)
	if !timedOut {
		n.hasReplied.Store(true)
		n.lastReply.Store(n.now())
	}
	return err
}

// startSender starts a goroutine that sends what waits for the node in batches, unless there is one
// that is not held up. The caller holds s.mu.
func (s *Store) startSender(n *node) {
	if n.sending || len(n.waiting) == 0 {
		return
	}
	n.sending = true
	n.sender++
	go s.sendBatches(n, n.sender)
}

// sendBatches sends what waits for the node, until nothing does, or a batch has taken so long that
// another goroutine sends the next.
func (s *Store) sendBatches(n *node, sender int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n.sender == sender && n.sending && len(n.waiting) > 0 {
		batch := n.waiting
		n.waiting, n.batchBuffer = n.batchBuffer[:0], nil
		n.sentAt = time.Now()
		n.stuckTimer.Reset(maxBatchDelay)
		s.send(n, batch)
		clear(batch)
		n.batchBuffer = batch
	}
	if n.sender == sender {
		n.sending = false
		n.stuckTimer.Stop()
	}
	s.startSender(n)
}

// replaceSender lets another goroutine send the next batch if that in flight takes too long.
func (s *Store) replaceSender(n *node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.sending && time.Since(n.sentAt) >= maxBatchDelay {
		n.sending = false
		s.startSender(n)
	}
}

// isUnresponsive reports whether the node has left requests without a reply for its timeout.
func (n *node) isUnresponsive() bool {
	return n.timedOut.Load() || n.pending.Load() > 0 && n.now()-n.lastReply.Load() > int64(n.timeout)
}

func (n *node) now() int64 { return int64(time.Since(n.began)) }
