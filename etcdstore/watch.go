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

// watch has the owner of an entry notified when the entry becomes a hold, and when it ends other
// than by Release, until it is forgotten. q is its queue, up to itself, or is read first if it has
// no revision. The caller holds s.mu.
//
// An exclusive place waits for all entries ahead of it: the last of them is watched, so that each
// event is for one place. For any other place all entries of the name are watched, and for a hold
// the hold itself.
func (s *Store) watch(e *entry, q queue) {
	if e.unwatch != nil || s.alive.Err() != nil || s.entries[[2]string{e.name, e.owner}] != e {
		return
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(s.alive))
	own, told := e.record, e.held // told: the owner knows that it holds
	e.unwatch = cancel
	s.group.Go(func() {
		defer cancel()
		if told {
			_ = retry.Sleep(ctx, watchDelay)
		}
		for failures := 0; ctx.Err() == nil; failures++ {
			if failures > 0 {
				_ = retry.Sleep(ctx, retry.Backoff(failures-1, 50*time.Millisecond, time.Second))
			}
			if q.revision == 0 {
				queues, err := s.readQueues(ctx, e)
				if err != nil {
					continue
				}
				q = queues[0]
				s.mu.Lock()
				now := s.look(q, e)
				if now == nil || now.Kept {
					e.unwatch = nil
					s.mu.Unlock()
					s.notices.Send(e.name, e.owner, 0)
					return
				}
				s.mu.Unlock()
			}
			key, opts := own.key, []clientv3.OpOption{clientv3.WithRev(q.revision + 1), clientv3.WithFilterPut()}
			switch {
			case q.waiting() > 0 && own.Limit <= 1:
				key = q.records[len(q.records)-2].key
			case q.waiting() > 0:
				key, opts = s.lockKeys+e.name+"\x00", append(opts, clientv3.WithPrefix())
			case !told:
				s.mu.Lock()
				told, e.held = true, true
				s.mu.Unlock()
				s.notices.Send(e.name, e.owner, own.token())
			}
			isOwn := false // The entry itself has ended.
			q.revision = 0
			watchCtx, stop := context.WithCancel(ctx)
			for resp := range s.client.Watch(watchCtx, key, opts...) {
				for _, event := range resp.Events {
					isOwn = isOwn || string(event.Kv.Key) == own.key
					q.records = slices.DeleteFunc(q.records, func(r *record) bool { return r.key == string(event.Kv.Key) })
					q.revision, failures = event.Kv.ModRevision-1, -1 // That revision may have ended the entry, too.
				}
				if resp.Err() != nil || isOwn || q.revision != 0 && (own.Limit <= 1 || q.waiting() == 0) {
					break
				}
			}
			stop()
			if isOwn || q.waiting() > 0 {
				q.revision = 0 // Of those ahead of an exclusive place others may have ended unseen.
			}
		}
	})
}
