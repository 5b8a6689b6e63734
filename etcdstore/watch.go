package etcdstore

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/retry"
)

// watchDelay is the age at which a hold is watched: shorter holds need no watch. A server may take
// 100 ms more to show what was before the watch.
const watchDelay = 50 * time.Millisecond

// watch begins the watch of an entry, which lasts until it is forgotten. Its queue, up to itself,
// is read again if it is not known.
func (s *Store) watch(e *entry, q queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alive.Err() != nil || s.entries[[2]string{e.name, e.owner}] != e || e.unwatch != nil {
		return
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(s.alive))
	own, told := e.record, e.held // by the answer to a request
	e.unwatch = cancel
	s.group.Go(func() {
		defer cancel()
		if told {
			_ = retry.Sleep(ctx, watchDelay)
		}
		s.follow(ctx, e, own, q, told)
	})
}

// follow notifies the owner of an entry when it becomes a hold, and when it ends other than by its
// Release. It reads the queue if that is not known as of a revision.
//
// An exclusive place waits for all entries ahead of it, so it watches the last of them, and there
// is one event for one place. Any other watches all entries of the name. A hold watches itself.
func (s *Store) follow(ctx context.Context, e *entry, own *record, q queue, told bool) {
	for failures := 0; ctx.Err() == nil; {
		if failures > 0 {
			_ = retry.Sleep(ctx, retry.Backoff(failures-1, 50*time.Millisecond, time.Second))
		}
		if q.revision == 0 {
			var err error
			if q, err = s.readQueue(ctx, e.name); err != nil {
				failures++
				continue
			}
			now := s.look(q, e)
			if now == nil || now.Kept {
				s.mu.Lock()
				e.unwatch = nil
				s.mu.Unlock()
				s.notices.Send(e.name, e.owner, 0)
				return
			}
			q.records = q.records[:slices.Index(q.records, now)+1]
		}
		key, opts := own.key(), []clientv3.OpOption{clientv3.WithRev(q.revision + 1), clientv3.WithFilterPut()}
		switch {
		case q.waiting() > 0 && own.Limit <= 1:
			key = q.records[len(q.records)-2].key()
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
		failures++
		watchCtx, cancel := context.WithCancel(ctx)
		for resp := range s.client.Watch(watchCtx, key, opts...) {
			for _, event := range resp.Events {
				isOwn = isOwn || string(event.Kv.Key) == own.key()
				q.records = slices.DeleteFunc(q.records, func(r *record) bool { return r.key() == string(event.Kv.Key) })
				q.revision, failures = event.Kv.ModRevision-1, 0 // It may have ended this one as well.
			}
			if resp.Err() != nil || isOwn || q.revision != 0 && (own.Limit <= 1 || q.waiting() == 0) {
				break
			}
		}
		cancel()
		if isOwn || q.waiting() > 0 {
			q.revision = 0 // Of those ahead of an exclusive place others may have ended unseen.
		}
	}
}
