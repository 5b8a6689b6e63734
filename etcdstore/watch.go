package etcdstore

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/retry"
)

// watchDelay is the age at which a hold is watched: shorter holds need no watch.
const watchDelay = 50 * time.Millisecond

// watch has the owner of an entry notified once: when a place becomes a hold, when the entry may
// have ended other than by its owner, or a second after the watch has failed. The Renew that
// follows has the entry watched again. The queue ends with the entry. The caller holds s.mu.
//
// An exclusive place waits for all entries ahead of it: the last of them is watched, so that each
// event is for one place. If there were others, the Renew tells whether they have ended. For any
// other place all entries of the name are watched, and for a hold the hold itself.
func (s *Store) watch(e *entry, q queue) {
	if e.unwatch != nil || s.alive.Err() != nil || s.entries[[2]string{e.name, e.owner}] != e {
		return
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(s.alive))
	own, isHold := q.own, q.waiting() == 0
	e.unwatch = cancel
	s.group.Go(func() {
		defer cancel()
		key, opts := own.key, []clientv3.OpOption{clientv3.WithRev(q.revision + 1), clientv3.WithFilterPut()}
		switch {
		case isHold:
			if retry.Sleep(ctx, watchDelay) != nil {
				return
			}
		case own.Limit > 1:
			key, opts = s.lockKeys+e.name+"\x00", append(opts, clientv3.WithPrefix())
		default:
			key = q.records[len(q.records)-2].key
		}
		isDone, token := false, int64(0)
		for resp := range s.client.Watch(ctx, key, opts...) {
			for _, event := range resp.Events {
				q.records = slices.DeleteFunc(q.records, func(r *record) bool { return r.key == string(event.Kv.Key) })
			}
			isThere := slices.Contains(q.records, own)
			if isThere && !isHold && q.waiting() == 0 {
				token = own.token()
			}
			if isDone = !isThere || token != 0 || own.Limit <= 1 && len(resp.Events) > 0; isDone {
				break
			}
		}
		if !isDone {
			_ = retry.Sleep(ctx, time.Second)
		}
		s.mu.Lock()
		isCurrent := ctx.Err() == nil
		if isCurrent {
			if e.unwatch = nil; e.held {
				token = 0 // It is granted to its owner already, who looks, and has the hold watched.
			}
			e.held = e.held || token != 0
		}
		s.mu.Unlock()
		if isCurrent {
			s.notices.Send(e.name, e.owner, token)
		}
	})
}
