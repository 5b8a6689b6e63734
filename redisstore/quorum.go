package redisstore

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/quorumnode"
)

func init() {
	quorumnode.Register(func(store driver.Store) quorumnode.SendBatch {
		if s, ok := store.(*Store); ok {
			return s.sendQuorumBatch
		}
		return nil
	})
}

// sendQuorumBatch implements [quorumnode.SendBatch].
func (s *Store) sendQuorumBatch(ctx context.Context, reqs []*quorumnode.Request) {
	unusable := s.checkUsable(ctx)
	calls, sent := make([]*call, 0, len(reqs)), make([]*quorumnode.Request, 0, len(reqs))
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
	for i, err := range s.runCalls(ctx, calls) {
		r, reply := sent[i], calls[i].reply
		switch {
		case err != nil:
			r.Err = err
		case r.Acquire != nil:
			r.Acquired, r.Err = granted(r.Acquire.Name, reply)
		default:
			r.Released = reply == int64(1)
		}
	}
}
