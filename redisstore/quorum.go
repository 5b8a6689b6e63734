package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/quorumbatch"
)

func init() {
	quorumbatch.Register(func(store driver.Store) quorumbatch.SendBatch {
		// The requests of a batch would wait for the slowest node of a cluster.
		if s, ok := store.(*Store); ok && !s.cluster && s.honorsDeadline {
			return func(ctx context.Context, reqs []*quorumbatch.Request) { s.sendQuorumBatch(ctx, reqs, true) }
		}
		return nil
	})
}

// sendQuorumBatch sends the requests of a batch (see [quorumbatch.SendBatch]) beside those in the
// queue of the Store: the quorum keeps the order, and a connection that hangs holds up nobody else.
// If it is the first sending, those that need notices are sent again when the Store has subscribed
// to them.
func (s *Store) sendQuorumBatch(ctx context.Context, reqs []*quorumbatch.Request, first bool) {
	unusable := s.checkUsable(ctx)
	calls, sent := make([]*call, 0, len(reqs)), make([]*quorumbatch.Request, 0, len(reqs))
	for _, r := range reqs {
		c, err := (*call)(nil), unusable
		switch {
		case err != nil:
		case r.Acquire != nil:
			c, err = s.acquireCall(r.Acquire)
		default:
			c, err = s.releaseCall(&r.Release)
		}
		if err != nil {
			r.Err = err
			continue
		}
		calls, sent = append(calls, c), append(sent, r)
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(requestBound)
	}
	for part := range slices.Chunk(calls, maxBatch) {
		s.sendBatch(ctx, deadline, part)
	}
	var again []*quorumbatch.Request
	for i, c := range calls {
		reply, err := s.readReply(c)
		r := sent[i]
		switch {
		case err != nil:
			r.Err = err
		case r.Acquire != nil:
			r.Acquired, r.Err = granted(r.Acquire.Name, reply)
			if r.Err == nil && first && s.mustSubscribe(r.Acquire, c, r.Acquired) {
				again = append(again, r)
			}
		default:
			r.Released = reply == int64(1)
		}
	}
	if len(again) > 0 && s.notifier.subscribe(ctx, s.lockKey(again[0].Acquire.Name), "") {
		s.sendQuorumBatch(ctx, again, false)
	}
}
