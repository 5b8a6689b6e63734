package advisory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/batch"
	"github.com/holdfast-go/holdfast/internal/lockqueue"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// An entry is a hold or a place of this Store, or an attempt at one. Store.mu guards the fields
// from session on.
type entry struct {
	owned
	key   string
	ttl   time.Duration
	place time.Duration // how long it may wait, 0 if it does not

	session *session           // has the key, or tries to get it
	cancel  context.CancelFunc // ends its wait
	state   entryState
	token   int64
	until   time.Time // its end, or, in the state ending, the time of the next try
	fresh   time.Time // so long the server keeps its session for ttl at least; set by a wait
}

// owned is a name and one of its owners.
type owned struct{ name, owner string }

type entryState uint8

const (
	trying  entryState = iota // an attempt is under way
	waiting                   // its session waits for the key
	held
	ending // its session gives the key back
)

// Acquire implements [driver.Store]. A refusal has no Record: nothing is known of the holder.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (res driver.Result, err error) {
	key, err := s.options.Keys.of(req.Name)
	if err = cmp.Or(s.checkUsable(ctx), lockqueue.Check(&req), err); err != nil {
		return res, err
	}
	if req.Tokens > 1 || req.Limit > 1 || req.Floor > 0 || len(req.Metadata) > 0 || req.Detached {
		return res, fmt.Errorf("%w: an advisory lock is exclusive, with one token and no floor of it, has no metadata, and ends with its session", driver.ErrUnsupported)
	}
	e := &entry{owned: owned{req.Name, req.Owner}, key: key, ttl: req.TTL, place: req.Place}
	if err = s.enter(e); err != nil {
		return res, err
	}
	c := &call{function: try, entry: e, ttl: req.TTL}
	err = s.sessions[0].do(ctx, c)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case errors.Is(err, batch.ErrNotSent):
		s.drop(e)
	case err == nil:
		res = driver.Result{Granted: c.done, Waiting: !c.done && s.owners[e.owned] == e, Token: c.token}
	}
	return res, err
}

// enter records the entry of a new owner, and has it watched.
func (s *Store) enter(e *entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ctx.Err() != nil:
		return driver.ErrClosed
	case s.owners[e.owned] != nil:
		return errors.New("this owner has an entry already")
	}
	e.session, e.cancel, e.until = s.sessions[0], func() {}, time.Now().Add(e.ttl+batchTimeout)
	s.owners[e.owned] = e
	if !s.watching {
		s.watching = true
		s.running.Go(s.watch)
	}
	return nil
}

// place has the entry of an attempt that was refused wait on a session without keys, if there is
// one. The caller holds s.mu.
func (s *Store) place(e *entry) bool {
	spare := slices.IndexFunc(s.sessions[1:], func(sess *session) bool { return len(sess.keys) == 0 })
	if spare < 0 || e.place == 0 || e.state != trying || s.ctx.Err() != nil {
		return false
	}
	s.drop(e)
	e.session, e.state, e.until = s.sessions[1+spare], waiting, time.Now().Add(e.place)
	s.owners[e.owned], e.session.keys[e.key] = e, e
	ctx, cancel := context.WithCancel(s.ctx)
	e.cancel = cancel
	s.running.Go(func() { s.wait(ctx, e) })
	return true
}

// wait blocks until the server grants or refuses the key of a place, or the wait is canceled. Then
// it notifies the owner.
func (s *Store) wait(ctx context.Context, e *entry) {
	defer e.cancel()
	c := &call{function: wait, entry: e, ttl: e.ttl}
	for again := true; again && ctx.Err() == nil; again = pgclient.SQLState(c.err) == lockNotAvailable {
		e.session.send(ctx, []*call{c})
	}
	if !c.done && retry.Sleep(ctx, shortPause) == nil { // else what cancels it unlocks it
		s.mu.Lock()
		s.drop(e)
		s.mu.Unlock()
	}
	s.notices.Send(e.name, e.owner, 0)
}

// drop forgets an entry that has no key at the server. The caller holds s.mu.
func (s *Store) drop(e *entry) {
	if s.owners[e.owned] == e {
		delete(s.owners, e.owned)
	}
	if e.session.keys[e.key] == e {
		delete(e.session.keys, e.key)
	}
}

// watch looks at the connections while there are entries, and ends the entries whose time is over.
func (s *Store) watch() {
	for retry.Sleep(s.ctx, lookInterval) == nil {
		s.mu.Lock()
		if s.watching = len(s.owners) > 0; !s.watching {
			s.mu.Unlock()
			return
		}
		now := time.Now()
		for _, e := range s.owners {
			if !now.Before(e.until) {
				e.state, e.until = ending, now.Add(batchTimeout) // After an error it is tried again.
				s.running.Go(func() {
					_, _ = s.end(s.ctx, e.owned)
					s.notices.Send(e.name, e.owner, 0)
				})
			}
		}
		s.mu.Unlock()
		for _, sess := range s.sessions {
			if sess.mu.TryLock() { // One that is in use fails by itself.
				sess.look(lookInterval)
				sess.mu.Unlock()
			}
		}
	}
}

// Release implements [driver.Store].
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if err := s.checkUsable(ctx); err != nil {
		return false, err
	}
	if req.Keep > 0 {
		return false, fmt.Errorf("%w: an advisory lock cannot be kept", driver.ErrUnsupported)
	}
	return s.end(ctx, owned{req.Name, req.Owner})
}

// end ends the entry of an owner, and reports whether it had a key or a place. The unlock is queued
// behind an attempt of the entry, and waits for the reply to its canceled wait.
func (s *Store) end(ctx context.Context, owner owned) (bool, error) {
	s.mu.Lock()
	e := s.owners[owner]
	if e == nil {
		s.mu.Unlock()
		return false, nil
	}
	placed := e.state == waiting
	e.state = ending
	s.mu.Unlock()
	e.cancel()
	c := &call{function: unlock, entry: e}
	err := e.session.do(ctx, c)
	return err == nil && (c.done || placed), err
}

// Renew implements [driver.Store]. What is asked of one session goes together.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	entries, errs := make([]driver.Entry, len(reqs)), make([]error, len(reqs))
	var group sync.WaitGroup
	for i, req := range reqs {
		group.Go(func() { entries[i], errs[i] = s.renew(ctx, req) })
	}
	group.Wait()
	return entries, cmp.Or(errs...)
}

// renew asks the session of a hold whether it is alive, and has the server keep it for the TTL,
// unless the hold is fresh, by the monotonic and by the wall clock: a suspended machine stops the
// former. The session of a place waits and cannot be asked: for it the first session is, which
// replies behind all attempts.
func (s *Store) renew(ctx context.Context, req driver.RenewRequest) (driver.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, sess, lost := s.owners[owned{req.Name, req.Owner}], s.sessions[0], driver.Entry{State: driver.Lost}
	if e == nil {
		return lost, nil
	}
	if e.state == held {
		sess = e.session
	}
	var err error
	now := time.Now()
	if e.state != held || req.TTL > e.ttl || now.After(e.fresh) || now.Round(0).After(e.fresh.Round(0)) {
		s.mu.Unlock()
		err = sess.do(ctx, &call{function: ping, entry: e, ttl: req.TTL})
		s.mu.Lock()
		now = time.Now()
	}
	switch {
	case s.owners[e.owned] != e || e.state == ending || !now.Before(e.until) || req.Token != 0 && req.Token != e.token:
		return lost, nil
	case err != nil:
		return driver.Entry{}, err
	}
	if until := now.Add(req.TTL); until.After(e.until) {
		e.until = until
	}
	if e.state == held && e.session == sess {
		return driver.Entry{State: driver.Held, Token: e.token}, nil
	}
	return driver.Entry{State: driver.Waiting}, nil // If it was granted meanwhile, a notice is on its way.
}

// List implements [driver.Store].
func (s *Store) List(ctx context.Context, _ string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		err := fmt.Errorf("%w: the server knows the keys of advisory locks, and not their names", driver.ErrUnsupported)
		yield(driver.Record{}, cmp.Or(s.checkUsable(ctx), err))
	}
}

// Break implements [driver.Store].
func (s *Store) Break(ctx context.Context, _ string, _ int64) ([]driver.Record, error) {
	err := fmt.Errorf("%w: pg_terminate_backend ends a session with all its advisory locks (Locks shows its PID)", driver.ErrUnsupported)
	return nil, cmp.Or(s.checkUsable(ctx), err)
}
