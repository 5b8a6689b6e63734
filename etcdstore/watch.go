package etcdstore

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// watch runs a watch for an owner, which lasts until the Release of the owner, or until a time unless
// that is zero. A watch of the owner is kept instead if it ends later, or if replaces is false.
func (s *Store) watch(name, owner string, replaces bool, until time.Time, run func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(s.alive))
	begins := false
	s.remember(name, owner, func(e *ownerState) {
		if e.endWatch != nil && (!replaces || !until.IsZero() && until.Before(e.watchedUntil)) {
			return
		}
		if e.endWatch != nil {
			e.endWatch()
		}
		begins, e.endWatch, e.watchedUntil = true, cancel, until
	})
	if !begins {
		cancel()
		return
	}
	s.goWhileOpen(func() {
		defer cancel()
		if !until.IsZero() {
			timer := time.AfterFunc(time.Until(until), cancel)
			defer timer.Stop()
		}
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

// watchName sends an Ask notice to an owner without a place when an entry of the name has ended,
// or is kept, after a revision, until ctx ends.
func (s *Store) watchName(ctx context.Context, name, owner string, revision int64) {
	begin, end := s.recKey(name, 0), s.recordsEnd(name)
	for failures := 0; ; failures++ {
		watchCtx, cancel := context.WithCancel(ctx)
		for resp := range s.client.Watch(watchCtx, begin, clientv3.WithRange(end), clientv3.WithRev(revision+1), clientv3.WithCreatedNotify()) {
			if resp.Err() != nil {
				break
			}
			if resp.Created {
				continue
			}
			failures, revision = 0, max(revision, resp.Header.Revision)
			if slices.ContainsFunc(resp.Events, func(e *clientv3.Event) bool { return !e.IsCreate() }) {
				s.notify(driver.Notice{Kind: driver.Ask, Name: name, Owner: owner})
			}
		}
		cancel()
		if backOff(ctx, failures) != nil {
			return
		}
		// What happened meanwhile may have been compacted.
		if resp, err := s.read(ctx, clientv3.OpGet(begin, clientv3.WithKeysOnly())); err == nil {
			revision = resp.Header.Revision
			s.notify(driver.Notice{Kind: driver.Ask, Name: name, Owner: owner})
		}
	}
}
