package etcdstore

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
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

// watchPlace sends the notices of a place, the last when it is admitted. It watches the entry before
// the place, and so it has an event of the end of the hold only if it is the first place. It returns
// when the place has ended or was admitted. The queue is read again if it is the zero value.
func (s *Store) watchPlace(ctx context.Context, name, owner string, token int64, tokens int, q queue) {
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
				return
			}
			f, err := s.decode(q.mine)
			if err != nil || f.Kept {
				return
			}
			tokens = max(f.Tokens, 1)
		}
		if q.before == "" {
			s.notify(driver.Notice{Kind: driver.Granted, Name: name, Owner: owner, Token: token, Tokens: tokens})
			return
		}
		watchCtx, cancel := context.WithCancel(ctx)
		ended := false // the entry before the place
	events:
		for resp := range s.client.Watch(watchCtx, q.before, clientv3.WithRange(mine+"\x00"), clientv3.WithRev(q.revision+1), clientv3.WithCreatedNotify()) {
			if resp.Err() != nil {
				break
			}
			if resp.Created {
				continue
			}
			failures = 0
			for _, event := range resp.Events {
				deleted := event.Type == clientv3.EventTypeDelete
				switch key := string(event.Kv.Key); {
				case deleted && key == mine:
					cancel()
					return
				case deleted && key == q.before:
					ended = true
					break events
				case key == q.before && q.ahead == 1: // The hold is kept, or has another lease.
					s.notify(driver.Notice{Kind: driver.Ask, Name: name, Owner: owner})
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
		q = queue{}
	}
}
