package memstore

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue/queuetest"
)

// The store keeps the rule of the queue, for exclusive holds.
func TestHistories(t *testing.T) {
	all, err := queuetest.Histories()
	if err != nil {
		t.Fatal(err)
	}
	played := 0
	for _, h := range all {
		played++
		synctest.Test(t, func(t *testing.T) {
			s := &historyStore{tb: t, store: New()}
			s.store.Notify(func(n driver.Notice) {
				s.notices = append(s.notices, queuetest.Notice{Owner: n.Owner, Token: n.Token, Tokens: n.Tokens})
			})
			if err := queuetest.Play(h, 1, s); err != nil {
				t.Error(err)
			}
		})
	}
	if played < 60 {
		t.Errorf("%d histories were played", played)
	}
}

type historyStore struct {
	tb      testing.TB
	store   *Store
	notices []queuetest.Notice
}

func (s *historyStore) Acquire(req queuetest.Request) (reply queuetest.Reply) {
	res, err := s.store.Acquire(s.tb.Context(), driver.AcquireRequest{
		Name: "name", Owner: req.Owner, Holder: req.Owner, TTL: req.TTL, Queue: req.Queue, Claim: req.Claim,
		Floor: req.Floor, Tokens: req.Tokens, Limit: req.Limit,
	})
	reply = queuetest.Reply{
		Token: res.Token, Tokens: res.Tokens, Queued: res.Queued, First: res.First,
		Invalid: errors.Is(err, driver.ErrInvalid), Held: res.Held.Holder, Left: res.Held.Remaining,
	}
	if res.Held.Kept {
		reply.Held = "keep"
	}
	if err != nil && !reply.Invalid {
		s.tb.Error(err)
	}
	return reply
}

func (s *historyStore) Renew(owner string, token int64, ttl time.Duration) queuetest.Outcome {
	outcomes, err := s.store.Renew(s.tb.Context(), []driver.RenewRequest{{Name: "name", Owner: owner, Token: token, TTL: ttl}})
	if err != nil {
		s.tb.Fatal(err)
	}
	switch outcomes[0] {
	case driver.Renewed:
		return queuetest.Renewed
	case driver.RenewQueued:
		return queuetest.Queued
	}
	return queuetest.Lost
}

func (s *historyStore) Release(owner string, keep time.Duration) bool {
	found, err := s.store.Release(s.tb.Context(), driver.ReleaseRequest{Name: "name", Owner: owner, Keep: keep})
	if err != nil {
		s.tb.Error(err)
	}
	return found
}

func (s *historyStore) Break(token int64) int {
	rec, found, err := s.store.Break(s.tb.Context(), driver.BreakRequest{Name: "name", Token: token})
	if err != nil {
		s.tb.Error(err)
	}
	if !found {
		return 0
	}
	return 1 + len(rec.Others)
}

func (s *historyStore) Notices() []queuetest.Notice {
	notices := s.notices
	s.notices = nil
	return notices
}

func (s *historyStore) Now() int64              { return time.Now().UnixMicro() }
func (s *historyStore) Advance(d time.Duration) { time.Sleep(d) }
