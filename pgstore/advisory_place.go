package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Bounds of the limit of a session: below the smallest a connection would be
// made anew again and again; above the greatest the server cannot count.
const (
	minLimit = time.Second
	maxLimit = 24 * 24 * time.Hour
)

// emptyBound is how long a connection without locks is kept.
const emptyBound = time.Minute

// limitFor is how long a session must be allowed to be silent for a hold to last
// its TTL.
func limitFor(ttl time.Duration) time.Duration {
	ms := (ttl + time.Millisecond - 1).Truncate(time.Millisecond)
	return max(ms, minLimit)
}

// A dial is a connection being made. Its error is set before done is closed.
type dial struct {
	done chan struct{}
	err  error
}

// place puts a claim on a session on which it lasts its TTL, and which is ended
// by the server soon after that if it is silent.
func (s *AdvisoryStore) place(ctx context.Context, c *claim, ttl time.Duration) (*session, error) {
	want := limitFor(ttl)
	for {
		on, d, err := s.choose(c, want)
		if err != nil {
			return nil, err
		}
		if on != nil {
			return on, s.fit(ctx, on, want)
		}
		select {
		case <-d.done:
			if d.err != nil {
				return nil, notApplied{d.err}
			}
		case <-ctx.Done():
			return nil, notApplied{fmt.Errorf("no connection to PostgreSQL yet: %w", ctx.Err())}
		}
	}
}

// choose finds a session for a claim, or else a dial to wait for.
func (s *AdvisoryStore) choose(c *claim, want time.Duration) (*session, *dial, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, driver.ErrClosed
	}
	if s.full() {
		return nil, nil, fmt.Errorf("%w: this store holds %d advisory locks, and may hold no more, since the server's lock table "+
			"has room for about %d: see AdvisoryOptions.MaxLocks and max_locks_per_transaction", driver.ErrNotApplied, s.mostLocks(), s.capacity)
	}
	on := s.best(want)
	if on == nil {
		return nil, s.dialing(want), nil
	}
	c.on = on
	on.used = time.Now()
	on.holds++
	return on, nil, nil
}

// full reports whether the store may not have more locks: claims that are on a
// session, and marks. The caller holds s.mu.
func (s *AdvisoryStore) full() bool {
	n := int(s.marks.Load())
	for _, on := range s.sessions {
		n += on.holds
	}
	most := s.mostLocks()
	return most > 0 && n >= most
}

func (s *AdvisoryStore) mostLocks() int {
	if s.options.MaxLocks > 0 {
		return s.options.MaxLocks
	}
	return s.capacity / 2
}

// best returns the session that suits best, nil if a new one is to be made. The
// caller holds s.mu.
func (s *AdvisoryStore) best(want time.Duration) *session {
	now := time.Now()
	var alive []*session
	var empty *session
	for _, on := range s.sessions {
		stale := on.holds == 0 && now.Sub(on.used) > on.limit-on.limit/8
		switch {
		case stale || on.overdue(now):
			continue
		case on.limit == want:
			return on
		case on.holds == 0:
			empty = on
		}
		alive = append(alive, on)
	}
	if len(alive) == 0 || len(alive)+len(s.dials) < s.options.MaxConns {
		return nil
	}
	if empty != nil {
		s.retire(empty)
		return nil
	}
	slices.SortFunc(alive, func(a, b *session) int { return cmp.Compare(a.limit, b.limit) })
	for _, on := range alive {
		if on.limit > want {
			return on
		}
	}
	return alive[len(alive)-1] // The server will have to bear with it for longer.
}

// fit has the server bear with the session's silence for as long as it must.
func (s *AdvisoryStore) fit(ctx context.Context, on *session, want time.Duration) error {
	s.mu.Lock()
	fits := on.limit >= want
	s.mu.Unlock()
	if fits {
		return nil
	}
	result := make(chan error, 1)
	s.raise(on, want, func(_ []byte, err error) { result <- err })
	select {
	case err := <-result:
		if err != nil {
			return notApplied{s.fault(err)}
		}
		return nil
	case <-ctx.Done():
		return notApplied{unanswered(ctx)}
	}
}

// raise sets the limit of a session, which never goes down: a limit in use is
// never below the TTL of a hold. It also keeps the server from giving up on the
// connection sooner, as it may when it hears nothing from the other end of it.
// The answer is that of a ping.
func (s *AdvisoryStore) raise(on *session, want time.Duration, done func([]byte, error)) {
	on.raising.Lock() // Limits are sent in the order in which they rise.
	defer on.raising.Unlock()
	on.target = max(on.target, want)
	limit := on.target
	on.send(statement{
		name:   "holdfast_limit",
		params: limitParams(limit),
		done: func(value []byte, err error) {
			if err == nil {
				s.mu.Lock()
				on.limit = max(on.limit, limit)
				s.mu.Unlock()
			}
			done(value, err)
		},
	})
}

// limitParams are the limit for the server in milliseconds, 0 for none, and in
// seconds.
func limitParams(limit time.Duration) [][]byte {
	ms := limit.Milliseconds()
	if limit > maxLimit {
		ms = 0
	}
	seconds := (min(limit.Milliseconds(), maxLimit.Milliseconds()) + 999) / 1000
	const most = 32767 // that Linux takes
	return [][]byte{strconv.AppendInt(nil, ms, 10), strconv.AppendInt(nil, min(seconds, most), 10)}
}

// dialing returns the dial for sessions of a limit, and starts it if there is
// none; or another, if there are as many as there may be. The caller holds s.mu.
func (s *AdvisoryStore) dialing(limit time.Duration) *dial {
	d := s.dials[limit]
	if d == nil && len(s.dials) >= s.options.MaxConns {
		for _, other := range s.dials {
			return other
		}
	}
	if d == nil {
		d = &dial{done: make(chan struct{})}
		s.dials[limit] = d
		s.running.Go(func() {
			on, err := s.connectLocks(limit)
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.dials, limit)
			d.err = err
			if err == nil {
				d.err = s.adopt(on)
			}
			close(d.done)
		})
	}
	return d
}

// adopt takes a new session into service. The caller holds s.mu.
func (s *AdvisoryStore) adopt(on *session) error {
	if s.closed {
		on.abandon()
		return driver.ErrClosed
	}
	on.used = time.Now()
	s.sessions = append(slices.Clone(s.sessions), on)
	on.tick = time.AfterFunc(tickFor(on.limit), func() { s.look(on) })
	s.running.Go(on.read)
	return nil
}

// forget takes a session out of service. The caller holds s.mu.
func (s *AdvisoryStore) forget(on *session) {
	s.sessions = slices.DeleteFunc(slices.Clone(s.sessions), func(other *session) bool { return other == on })
	on.tick.Stop()
}

// retire ends a session without locks. The caller holds s.mu.
func (s *AdvisoryStore) retire(on *session) {
	s.forget(on)
	s.running.Go(on.leave)
}

func tickFor(limit time.Duration) time.Duration { return min(limit/4, emptyBound/4) }

// look ends a session that has no locks any more, and one that the server must
// have given up. It keeps one with locks from falling silent for so long that
// something in the network forgets the connection.
func (s *AdvisoryStore) look(on *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.sessions, on) {
		return
	}
	now := time.Now()
	late, sent := on.progress(now)
	switch {
	case late > on.limit || late > answerBound && on.holds == 0:
		on.abandon()
	case on.holds == 0 && late == 0 && now.Sub(on.used) >= min(on.limit/2, emptyBound):
		s.retire(on)
		return
	case on.holds > 0 && late == 0 && sent == on.looked && on.limit >= 2*emptyBound:
		s.running.Go(func() { on.send(statement{name: "holdfast_ping", done: func([]byte, error) {}}) })
	}
	on.looked = sent
	on.tick.Reset(tickFor(on.limit))
}
