package etcdstore

import (
	"cmp"
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// watch runs a watch for an owner, which lasts until the Release of the owner. A watch of the owner
// is kept instead unless replaces is set.
func (s *Store) watch(name, owner string, replaces bool, run func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(s.alive))
	begins := false
	s.remember(name, owner, func(e *ownerState) {
		if e.endWatch != nil && !replaces {
			return
		}
		if e.endWatch != nil {
			e.endWatch()
		}
		begins, e.endWatch = true, cancel
	})
	if !begins {
		cancel()
		return
	}
	s.goWhileOpen(func() {
		defer cancel()
		run(ctx)
	})
}

// watchEntry sends the notices of an entry: one when it becomes a hold, unless that is told already,
// and one when it has ended other than by its Release. Of a place it watches the entry before it,
// too, and so it has an event of the end of the hold only if it is the first place. The queue is
// read again if it is the zero value.
func (s *Store) watchEntry(ctx context.Context, name, owner string, token int64, told bool, q queue) {
	mine := s.recKey(name, token)
	for failures := 0; ; failures++ {
		if q.revision == 0 {
			var err error
			if q, err = s.readQueue(ctx, name, owner, token); err != nil {
				q = queue{}
				if backOff(ctx, failures) != nil {
					return
				}
				continue
			}
			if q.mine == nil {
				s.notify(name, owner, 0)
				return
			}
		}
		if q.before == "" && !told {
			told = true
			s.notify(name, owner, token)
		}
		first := cmp.Or(q.before, mine)
		watchCtx, cancel := context.WithCancel(ctx)
		ended := false // the entry before the place
	events:
		for resp := range s.client.Watch(watchCtx, first, clientv3.WithRange(mine+"\x00"), clientv3.WithRev(q.revision+1), clientv3.WithFilterPut()) {
			if resp.Err() != nil {
				break
			}
			failures = 0
			for _, event := range resp.Events {
				switch string(event.Kv.Key) {
				case mine:
					cancel()
					s.notify(name, owner, 0)
					return
				case q.before:
					ended, q.revision = true, event.Kv.ModRevision
					break events
				}
			}
		}
		cancel()
		switch {
		case ended && q.ahead == 1:
			q.before = "" // The place existed at the revision at which the hold ended.
			continue
		case !ended && backOff(ctx, failures) != nil:
			return
		}
		q = queue{} // The request authenticates the client again, if need be.
	}
}
