package oldqueue_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/oldqueue"
	"github.com/holdfast-go/holdfast/internal/oldqueue/queuetest"
)

func TestHistories(t *testing.T) {
	queuetest.Run(t, 1, func(tb testing.TB) queuetest.Store { return &queueStore{tb: tb} })
}

// A queueStore is a Queue as a store: with a clock and a list of notices.
type queueStore struct {
	tb      testing.TB
	queue   oldqueue.Queue[struct{}]
	counter oldqueue.Counter
	now     time.Duration
	notices []queuetest.Notice
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (s *queueStore) Now() int64              { return start.Add(s.now).UnixMicro() }
func (s *queueStore) Advance(d time.Duration) { s.now += d }

func (s *queueStore) Notices() []queuetest.Notice {
	notices := s.notices
	s.notices = nil
	return notices
}

// clock returns the counter at the present time, and checks that no entry ends right now.
func (s *queueStore) clock() *oldqueue.Counter {
	for e := range s.queue.All() {
		if e.Until == s.now {
			s.tb.Errorf("the entry of %s ends at the time of a step", e.Owner)
		}
	}
	s.counter.Clock = s.Now()
	return &s.counter
}

func (s *queueStore) notify(entries []oldqueue.Entry[struct{}]) {
	for _, e := range entries {
		n := queuetest.Notice{Owner: e.Owner}
		if e.Token != 0 {
			n.Token, n.Tokens = e.Token, int(e.Tokens)
		}
		s.notices = append(s.notices, n)
	}
}

func (s *queueStore) Acquire(req queuetest.Request) queuetest.Reply {
	own, notices, err := s.queue.Acquire(oldqueue.Request[struct{}]{
		Entry: oldqueue.Entry[struct{}]{
			Owner: req.Owner, Limit: int32(req.Limit), Floor: req.Floor, Tokens: int32(req.Tokens),
		},
		TTL: req.TTL, Queue: req.Queue, Claim: req.Claim,
	}, s.now, s.clock())
	s.notify(notices)
	reply := queuetest.Reply{Invalid: err != nil}
	switch {
	case own != nil && own.Token != 0:
		reply.Token, reply.Tokens = own.Token, int(own.Tokens)
		return reply
	case own != nil:
		reply.Queued, reply.First = true, own == s.queue.First()
	}
	if oldest := s.queue.Oldest(); oldest != nil && err == nil {
		reply.Held, reply.Left = oldest.Owner, oldest.Until-s.now
		if oldest.Kept {
			reply.Held = "keep"
		}
	}
	return reply
}

func (s *queueStore) Renew(owner string, token int64, ttl time.Duration) queuetest.Outcome {
	own, notices := s.queue.Renew(owner, token, ttl, s.now, s.clock())
	s.notify(notices)
	switch {
	case own == nil:
		return queuetest.Lost
	case own.Token == 0:
		return queuetest.Queued
	}
	return queuetest.Renewed
}

func (s *queueStore) Release(owner string, keep time.Duration) bool {
	found, notices := s.queue.Release(owner, keep, s.now, s.clock())
	s.notify(notices)
	return found
}

func (s *queueStore) Break(token int64) int {
	ended, notices := s.queue.Break(token, s.now, s.clock())
	s.notify(notices)
	return len(ended)
}

// An entry is over at its end, not before. Histories do not come so near to it.
func TestEnd(t *testing.T) {
	c := oldqueue.Counter{Clock: 1}
	var q oldqueue.Queue[struct{}]
	req := func(owner string) oldqueue.Request[struct{}] {
		return oldqueue.Request[struct{}]{Entry: oldqueue.Entry[struct{}]{Owner: owner}, TTL: 10, Queue: 10}
	}
	q.Acquire(req("A"), 0, &c)
	q.Acquire(req("B"), 5, &c)
	if admitted := q.Settle(9, &c); admitted != nil || q.First() == nil {
		t.Errorf("before the end of the hold %v is admitted", admitted)
	}
	if admitted := q.Settle(10, &c); len(admitted) != 1 || admitted[0].Owner != "B" || admitted[0].Since != 10 || admitted[0].Until != 15 {
		t.Errorf("at the end of the hold %+v is admitted", admitted)
	}
	q.Settle(15, &c)
	for e := range q.All() {
		t.Errorf("at the end of the place %+v is left", e)
	}
}

// The entry keeps what the store keeps with it, and notices have it.
func TestData(t *testing.T) {
	c := oldqueue.Counter{Clock: 1}
	var q oldqueue.Queue[string]
	for _, owner := range []string{"A", "B"} {
		e := oldqueue.Entry[string]{Owner: owner, Data: "data of " + owner}
		q.Acquire(oldqueue.Request[string]{Entry: e, TTL: 10, Queue: 10}, 0, &c)
	}
	if _, notices := q.Release("A", 0, 1, &c); len(notices) != 1 || notices[0].Data != "data of B" {
		t.Errorf("the notices of a release are %+v", notices)
	}
}

func TestTokens(t *testing.T) {
	const clock = 1_000_000_000
	farthest := driver.MaxLead.Microseconds()
	for _, c := range []struct {
		name        string
		last, floor int64
		want        int32
		token       int64
		count       int32
	}{
		{"the clock", 5, 5, 1, clock, 1},
		{"one above the last", clock, 5, 1, clock + 1, 1},
		{"the floor", clock, clock + 9, 1, clock + 9, 1},
		{"none is requested", 5, 5, 0, clock, 1},
		{"a block", clock + 7, 0, 1024, clock + 8, 1024},
		{"a larger block", 0, 0, 1025, clock, 1024},
		{"the last as far ahead as may be", clock + farthest - 1024, 0, 1024, clock + farthest - 1023, 1024},
		{"the last further ahead", clock + farthest - 1023, 0, 1024, clock + farthest - 1022, 1},
		{"the farthest floor", 0, clock + farthest, 9, clock + farthest, 9},
		{"a floor too far", 0, clock + farthest + 1, 1, 0, 0},
		{"the greatest token", driver.MaxToken - 1, 0, 1, driver.MaxToken, 1},
		{"above the greatest token", driver.MaxToken, 0, 1, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			counter := oldqueue.Counter{Last: c.last, Clock: clock}
			var q oldqueue.Queue[struct{}]
			e := oldqueue.Entry[struct{}]{Owner: "A", Floor: c.floor, Tokens: c.want}
			own, _, err := q.Acquire(oldqueue.Request[struct{}]{Entry: e, TTL: 10}, 0, &counter)
			if c.token == 0 {
				if own != nil || !errors.Is(err, driver.ErrInvalid) || q.Oldest() != nil || q.First() != nil || counter.Last != c.last {
					t.Errorf("%+v is granted, %v, last %d", own, err, counter.Last)
				}
				return
			}
			if err != nil || own.Token != c.token || own.Tokens != c.count || counter.Last != c.token+int64(c.count)-1 {
				t.Errorf("%+v is granted, %v, last %d", own, err, counter.Last)
			}
		})
	}
}

// Near the greatest token there are fewer in a row.
func TestLastTokens(t *testing.T) {
	c := oldqueue.Counter{Last: driver.MaxToken - 3, Clock: driver.MaxToken - 100}
	var q oldqueue.Queue[struct{}]
	e := oldqueue.Entry[struct{}]{Owner: "A", Tokens: 10}
	own, _, err := q.Acquire(oldqueue.Request[struct{}]{Entry: e, TTL: 10}, 0, &c)
	if err != nil || own.Tokens != 3 || c.Last != driver.MaxToken {
		t.Errorf("%+v, %v", own, err)
	}
}
