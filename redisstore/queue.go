package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/batch"
)

// A call is what a script is to do with one lock.
type call struct {
	script *script
	tag    string // of the keys' hash slot, in a cluster
	lock   string

	// The arguments: its own, and those that the calls of a batch may share. A script has the first
	// of each, both, or none.
	owner  string // with a line break; of breakScript the token, or ""
	floor  int64
	tokens int    // how many tokens are requested; 0 means 1
	limit  int    // of the hold
	ms     int64  // TTL, or time to keep the name
	wait   string // how to queue; of claimScript the time of a place
	public string // the public part of the value: the holder, and the metadata on another line if there is any

	// The results. They are valid once the call has returned from its queue without an error.
	reply any
	err   error
}

const (
	// maxBatch is how many calls go into one batch.
	maxBatch = 1024

	// requestBound limits a request whose context has no deadline, and a batch.
	requestBound = 3 * time.Second

	// slowAfter is how long a batch holds up calls for other locks. Then these go on another
	// connection.
	slowAfter = 250 * time.Millisecond

	// minInline is the least time that a caller must have left to send calls on its own goroutine.
	// With less, another goroutine sends them, to the full bound, so that the release that follows
	// a call given up does not overtake it on another connection.
	minInline = 900 * time.Millisecond

	// singleQueues is how many queues there are to a single server: it works on the calls of one
	// while the client prepares those of the other.
	singleQueues = 2

	// clusterQueues is how many queues there are to a cluster, so that a node that hangs holds up
	// few of the locks on other nodes.
	clusterQueues = 16
)

// newQueues returns the queues of a store.
func (s *engine) newQueues() []batch.Queue[*call] {
	n := singleQueues
	if s.cluster {
		n = clusterQueues
	}
	queues := make([]batch.Queue[*call], n)
	for i := range queues {
		q := &queues[i]
		q.Send, q.Name = s.sendBatch, (*call).orderKey
		q.Max, q.Bound, q.StuckAfter = maxBatch, requestBound, slowAfter
		if s.honorsDeadline {
			q.MinInline = minInline
		}
	}
	return queues
}

// orderKey returns the lock whose other calls keep their order with c. Lookups have none, since they
// change nothing. Renewals have none, since a late one prolongs the hold of its own owner only.
func (c *call) orderKey() string {
	if c.script == renewScript || c.script == lookupScript {
		return ""
	}
	return c.lock
}

// queueOf returns the queue of a lock. It is always the same, so that calls keep their order.
func (s *engine) queueOf(lock string) *batch.Queue[*call] {
	return &s.queues[int(slotOf(lock))%len(s.queues)]
}

// newCall returns a call that runs a script on a lock.
func (s *engine) newCall(script *script, name string) *call {
	lock := s.lockKey(name)
	return &call{script: script, tag: s.hashTagOf(lock), lock: lock}
}

// newOwnerCall returns a call by the owner of a lock.
func (s *engine) newOwnerCall(script *script, name, owner string, ms int64) *call {
	both := s.prefix + name + owner + "\n" // in one piece of memory
	size := len(s.prefix) + len(name)
	lock := both[:size]
	return &call{script: script, tag: s.hashTagOf(lock), lock: lock, owner: both[size:], ms: ms}
}

// runCall makes a call and returns its reply.
func (s *engine) runCall(ctx context.Context, c *call) (any, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	if err := s.queueOf(c.lock).Do(ctx, c); err != nil {
		return nil, s.wrapErr(err)
	}
	return s.readReply(c)
}

// runCalls makes calls without an order, and returns the error of each. The replies are in the
// calls.
func (s *engine) runCalls(ctx context.Context, calls []*call) []error {
	errs := make([]error, len(calls))
	if !s.cluster {
		s.runInQueue(ctx, &s.queues[0], calls, errs)
		return errs
	}
	byQueue := map[*batch.Queue[*call]][]int{}
	for i, c := range calls {
		q := s.queueOf(c.lock)
		byQueue[q] = append(byQueue[q], i)
	}
	var group sync.WaitGroup
	for q, places := range byQueue {
		group.Go(func() {
			together, failed := make([]*call, len(places)), make([]error, len(places))
			for i, place := range places {
				together[i] = calls[place]
			}
			s.runInQueue(ctx, q, together, failed)
			for i, place := range places {
				errs[place] = failed[i]
			}
		})
	}
	group.Wait()
	return errs
}

// runInQueue makes calls that are all in one queue.
func (s *engine) runInQueue(ctx context.Context, q *batch.Queue[*call], calls []*call, errs []error) {
	for begin := 0; begin < len(calls); begin += maxBatch {
		end := min(begin+maxBatch, len(calls))
		err := q.DoAll(ctx, calls[begin:end])
		for i := begin; i < end; i++ {
			if err != nil {
				errs[i] = s.wrapErr(err)
			} else {
				_, errs[i] = s.readReply(calls[i])
			}
		}
	}
}

// readReply returns the reply to a call, or the error that the reply stands for.
func (s *engine) readReply(c *call) (any, error) {
	if c.err != nil {
		return nil, s.wrapErr(c.err)
	}
	if words, ok := c.reply.([]any); ok && len(words) > 0 {
		switch words[0] {
		case "ahead":
			return nil, fmt.Errorf("%w: the floor of the token is more than %v above the server's clock", driver.ErrInvalid, driver.MaxLead)
		case "exhausted":
			return nil, fmt.Errorf("%w: there is no token as great as the request needs: see the keys %q and %q",
				driver.ErrInvalid, s.counterKey(c.tag), s.aheadKey(c.tag))
		case "type":
			return nil, fmt.Errorf("%w: the key %q is a %v and no lock of this package: it is left alone, since it may be data; "+
				"DEL ends it if it is the lock of another kind of client", driver.ErrInvalid, c.lock, words[len(words)-1])
		case "failed":
			text, _ := words[len(words)-1].(string)
			return nil, s.explainReply(errors.New(text))
		}
	}
	return c.reply, nil
}

// checkUsable returns why the store cannot make requests.
func (s *engine) checkUsable(ctx context.Context) error {
	if s.closed.Load() {
		return driver.ErrClosed
	}
	if s.configErr != nil {
		return s.configErr
	}
	return driver.NotApplied(ctx.Err())
}
