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

// watch begins the watch of an entry, which lasts until it is forgotten. It was made behind those
// in a queue, which is read again if it is zero.
func (s *Store) watch(e *entry, q queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alive.Err() != nil || s.entries[[2]string{e.name, e.owner}] != e || e.unwatch != nil {
		return
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(s.alive))
	told := e.held // by the answer to a request
	e.unwatch = cancel
	s.group.Go(func() {
		defer cancel()
		if told {
			_ = retry.Sleep(ctx, watchDelay)
		}
		s.follow(ctx, e, q, told)
	})
}

// follow notifies the owner of an entry when it becomes a hold, and when it ends other than by its
// Release. It reads the queue if that is not known as of a revision.
//
// An exclusive place waits for all entries ahead of it, so it watches the last of them, and there
// is one event for one place. Any other watches all entries of the name. A hold watches itself.
func (s *Store) follow(ctx context.Context, e *entry, q queue, told bool) {
	ahead, revision := q.records, q.revision
	for failures := 0; ctx.Err() == nil; {
		if failures > 0 {
			_ = retry.Sleep(ctx, retry.Backoff(failures-1, 50*time.Millisecond, time.Second))
		}
		if revision == 0 {
			q, err := s.readQueue(ctx, e.name)
			if err != nil {
				failures++
				continue
			}
			i := s.look(q, e)
			if i < 0 || q.records[i].Kept {
				s.mu.Lock()
				e.unwatch = nil
				s.mu.Unlock()
				s.tell(ctx, e, 0)
				return
			}
			ahead, revision = q.records[:i], q.revision
		}
		key, opts := e.key, []clientv3.OpOption{clientv3.WithRev(revision + 1), clientv3.WithFilterPut()}
		switch {
		case !admits(ahead, e.limit) && e.limit <= 1:
			key = ahead[len(ahead)-1].key()
		case !admits(ahead, e.limit):
			key, opts = s.lockKeys+e.name+"\x00", append(opts, clientv3.WithPrefix())
		case !told:
			s.mu.Lock()
			told, e.held = true, true
			s.mu.Unlock()
			s.tell(ctx, e, e.token)
		}
		isOwn := false // The entry itself has ended.
		revision = 0
		failures++
		watchCtx, cancel := context.WithCancel(ctx)
		for resp := range s.client.Watch(watchCtx, key, opts...) {
			for _, event := range resp.Events {
				ahead = slices.DeleteFunc(ahead, func(r *record) bool { return r.key() == string(event.Kv.Key) })
				revision, failures = event.Kv.ModRevision-1, 0 // It may have ended this one as well.
				isOwn = isOwn || string(event.Kv.Key) == e.key
			}
			if resp.Err() != nil || isOwn || revision != 0 && (e.limit <= 1 || admits(ahead, e.limit)) {
				break
			}
		}
		cancel()
		if isOwn || !admits(ahead, e.limit) {
			revision = 0 // Of those ahead of an exclusive place others may have ended unseen.
		}
	}
}

// tell sends a notice of an entry, unless its watch has ended.
func (s *Store) tell(ctx context.Context, e *entry, token int64) {
	if ctx.Err() == nil {
		s.notices.Send(e.name, e.owner, token)
	}
}
