package etcdstore

import (
	"context"
	"encoding/json"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// newWatch returns the context of a watch of the entry, and ends the one before it. The caller holds
// s.mu.
func (s *Store) newWatch(e *entry) context.Context {
	if e.endWatch != nil {
		e.endWatch()
	}
	ctx, cancel := context.WithCancel(s.alive)
	e.endWatch = cancel
	return ctx
}

// watchAgain watches a place, unless this Store watches it already.
func (s *Store) watchAgain(name, owner string, token int64) {
	var ctx context.Context
	s.remember(name, owner, func(e *entry) {
		if e.endWatch == nil {
			e.token, ctx = token, s.newWatch(e)
		}
	})
	if ctx != nil {
		s.goWhileOpen(func() { s.watchPlace(ctx, name, owner, token, 0, "", 0, false) })
	}
}

// watchPlace sends the notices of a place. It watches the entry before the place, and so it observes
// the end of the hold only if the place is the first. It returns when the place has ended or was
// admitted.
func (s *Store) watchPlace(ctx context.Context, name, owner string, token int64, tokens int, before string, revision int64, isFirst bool) {
	mine := s.recKey(name, token)
	for failures := 0; ; failures++ {
		if revision == 0 {
			p, err := s.position(ctx, name, token)
			switch {
			case err != nil:
				if retry.Sleep(ctx, retry.Backoff(failures, 50*time.Millisecond, time.Second)) != nil {
					return
				}
				continue
			case p.mine == nil:
				return
			}
			f, err := s.decode(p.mine)
			if err != nil || f.Kept {
				return
			}
			before, revision, isFirst, tokens = p.before, p.revision, p.ahead == 1, max(f.Tokens, 1)
		}
		if before == "" {
			s.notices.Send(driver.Notice{Kind: driver.Granted, Name: name, Owner: owner, Token: token, Tokens: tokens})
			return
		}
		watchCtx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
		ended := false // the entry before the place
	watch:
		for resp := range s.client.Watch(watchCtx, before, clientv3.WithRange(mine+"\x00"), clientv3.WithRev(revision+1)) {
			if resp.Err() != nil {
				break
			}
			failures = 0
			for _, event := range resp.Events {
				switch deleted := event.Type == clientv3.EventTypeDelete; {
				case deleted && string(event.Kv.Key) == mine:
					cancel()
					return
				case deleted && string(event.Kv.Key) == before:
					ended = true
					break watch
				case isFirst && string(event.Kv.Key) == before:
					var rec record
					if json.Unmarshal(event.Kv.Value, &rec) == nil && rec.Kept {
						s.notices.Send(driver.Notice{Kind: driver.Ask, Name: name, Owner: owner})
					}
				}
			}
		}
		cancel()
		if ctx.Err() != nil {
			return
		}
		if ended && isFirst {
			before = "" // The place existed at the revision at which the hold ended.
			continue
		}
		revision = 0
		if !ended && retry.Sleep(ctx, retry.Backoff(failures, 50*time.Millisecond, time.Second)) != nil {
			return
		}
	}
}

// asks are the owners without a place that get Ask notices of a name, and until when.
type asks struct{ until map[string]time.Time }

// askUntil sends Ask notices to an owner until a time, from a revision on. The zero time ends them.
func (s *Store) askUntil(name, owner string, until time.Time, revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.asks[name]
	switch {
	case until.IsZero():
		if a != nil {
			delete(a.until, owner)
		}
	case a != nil:
		if until.After(a.until[owner]) {
			a.until[owner] = until
		}
	case !s.closed:
		a = &asks{map[string]time.Time{owner: until}}
		s.asks[name] = a
		s.group.Go(func() { s.watchName(name, a, revision) })
	}
}

// watchName sends the Ask notices of a name, as long as an owner waits.
func (s *Store) watchName(name string, a *asks, revision int64) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(s.alive))
	defer cancel()
	// wanted returns the owners that still wait, and how long. If there is none it ends the watch.
	wanted := func() (owners []string, left time.Duration) {
		s.mu.Lock()
		defer s.mu.Unlock()
		now := time.Now()
		for owner, until := range a.until {
			if until.After(now) {
				owners, left = append(owners, owner), max(left, until.Sub(now))
			} else {
				delete(a.until, owner)
			}
		}
		if len(owners) == 0 && s.asks[name] == a {
			delete(s.asks, name)
		}
		return owners, left
	}
	begin, end := s.recKey(name, 0), s.recordsEnd(name)
	for failures := 0; ; failures++ {
		watchCtx, endWatch := context.WithCancel(ctx)
		events := s.client.Watch(watchCtx, begin, clientv3.WithRange(end), clientv3.WithRev(revision+1))
	watch:
		for {
			owners, left := wanted()
			if len(owners) == 0 {
				endWatch()
				return
			}
			timer := time.NewTimer(min(left, time.Second) + time.Millisecond)
			select {
			case resp, open := <-events:
				timer.Stop()
				if !open || resp.Err() != nil {
					break watch
				}
				failures, revision = 0, max(revision, resp.Header.Revision)
				for _, event := range resp.Events {
					var rec record
					// Owners may have come since.
					if owners, _ := wanted(); event.Type == clientv3.EventTypeDelete || json.Unmarshal(event.Kv.Value, &rec) == nil && rec.Kept {
						for _, owner := range owners {
							s.notices.Send(driver.Notice{Kind: driver.Ask, Name: name, Owner: owner})
						}
						break
					}
				}
			case <-timer.C:
			}
		}
		endWatch()
		if retry.Sleep(ctx, retry.Backoff(failures, 50*time.Millisecond, time.Second)) != nil {
			return
		}
		// What happened meanwhile may have been compacted.
		if resp, err := s.read(ctx, name, clientv3.OpGet(begin, clientv3.WithKeysOnly())); err == nil {
			revision = resp.Header.Revision
			owners, _ := wanted()
			for _, owner := range owners {
				s.notices.Send(driver.Notice{Kind: driver.Ask, Name: name, Owner: owner})
			}
		}
	}
}
