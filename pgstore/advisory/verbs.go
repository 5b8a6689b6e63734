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

// failurePause is how long a place lasts that cannot wait in the server.
const failurePause = 250 * time.Millisecond

// An entry is a hold or a place of this Store, or an attempt at a hold. Store.mu guards the fields
// from state on.
type entry struct {
	owned
	key     Key
	session *session           // that has the key, or tries to get it
	ttl     time.Duration      // of the hold that a place becomes
	ctx     context.Context    // of its wait
	cancel  context.CancelFunc // ends it

	state entryState
	token int64
	until time.Time // its end, and, while it is being ended, when that is tried again
	kept  time.Time // until when the server keeps the session at least, after a wait
}

// owned is a name and one of its owners.
type owned struct{ name, owner string }

type entryState uint8

const (
	trying  entryState = iota // an attempt is under way
	waiting                   // its session waits for the key
	held
	ending // what it has at the server is being given back
)

// Acquire implements [driver.Store]. A refusal has no Record: nothing is known of the holder.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (res driver.Result, err error) {
	key, err := s.options.Keys(req.Name)
	if err = cmp.Or(s.checkUsable(ctx), lockqueue.Check(&req), err); err != nil {
		return res, err
	}
	if req.Tokens > 1 || req.Limit > 1 || req.Floor > 0 || len(req.Metadata) > 0 || req.Detached {
		return res, fmt.Errorf("%w: an advisory lock is exclusive, with one token and no floor of it, has no metadata, and ends with its session", driver.ErrUnsupported)
	}
	e := &entry{owned: owned{req.Name, req.Owner}, key: key, cancel: func() {}, until: time.Now().Add(req.TTL + batchTimeout)}
	if err = s.enter(e); err != nil {
		return res, err
	}
	c := &call{function: try, entry: e, ttl: req.TTL}
	switch err = e.session.do(ctx, c); {
	case errors.Is(err, batch.ErrNotSent):
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drop(e)
		return res, driver.NotApplied(err)
	case err != nil:
		return res, err
	case c.done:
		return driver.Result{Granted: true, Token: c.token}, nil
	}
	place := &entry{owned: e.owned, key: key, ttl: req.TTL, state: waiting, until: time.Now().Add(req.Place)}
	return driver.Result{Waiting: req.Place > 0 && s.enter(place) == nil}, nil
}

// enter records the entry of a new owner, and has it watched. A place begins to wait, on a session
// that is spare. The server would grant a session its own keys again: what the session has already,
// or tries to get, is not sent for another entry.
func (s *Store) enter(e *entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ctx.Err() != nil:
		return driver.ErrClosed
	case s.owners[e.owned] != nil:
		return errors.New("this owner has an entry already")
	}
	e.session = s.sessions[0]
	if e.state == waiting {
		spare := slices.IndexFunc(s.sessions, func(sess *session) bool { return sess != s.sessions[0] && len(sess.keys) == 0 })
		if spare < 0 {
			return errors.New("there are waiters enough")
		}
		e.session = s.sessions[spare]
		e.ctx, e.cancel = context.WithCancel(s.ctx)
		s.running.Go(func() { s.wait(e) })
	}
	s.owners[e.owned] = e
	if e.session.keys[e.key] == nil {
		e.session.keys[e.key] = e
	}
	if !s.watching {
		s.watching = true
		s.running.Go(s.watch)
	}
	return nil
}

// wait blocks until the server grants the key of a place, its wait is canceled, or the server
// refuses, and notifies the owner.
func (s *Store) wait(e *entry) {
	defer e.cancel()
	c := &call{function: wait, entry: e, ttl: e.ttl}
	for again := true; again && e.ctx.Err() == nil; again = pgclient.SQLState(c.err) == lockNotAvailable {
		e.session.send(e.ctx, []*call{c})
	}
	if !c.done {
		_ = retry.Sleep(e.ctx, failurePause)
		s.mu.Lock()
		s.drop(e)
		s.mu.Unlock()
	}
	s.notices.Send(e.name, e.owner, 0)
}

// drop forgets an entry that has nothing at the server any more. The caller holds s.mu.
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

// end ends the entry of an owner, and reports whether there was one that nobody else was ending. It
// follows what the session does for the entry: an attempt, or a wait, until that has a reply.
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

// renew asks the session of a hold whether it is alive, and has the server keep it for the TTL. The
// session of a place cannot be asked, since it waits: the first one shows that the server replies,
// behind all attempts. Nothing is asked within a second of the beginning of a wait that has ended
// with a grant, by the wall clock too: the other one stands still while the machine is suspended.
func (s *Store) renew(ctx context.Context, req driver.RenewRequest) (driver.Entry, error) {
	owner := owned{req.Name, req.Owner}
	var err error
	s.mu.Lock()
	defer s.mu.Unlock()
	e, sess := s.owners[owner], s.sessions[0]
	if e != nil && e.state == held {
		sess = e.session
	}
	if e != nil && (e.state != held || time.Until(e.kept) <= req.TTL || time.Until(e.kept.Round(0)) <= req.TTL) {
		s.mu.Unlock()
		err = sess.do(ctx, &call{function: ping, ttl: req.TTL})
		s.mu.Lock()
		e = s.owners[owner]
	}
	now := time.Now()
	switch {
	case e == nil || e.state == ending || !now.Before(e.until) || req.Token != 0 && req.Token != e.token:
		return driver.Entry{State: driver.Lost}, nil
	case err != nil:
		return driver.Entry{}, err
	}
	if until := now.Add(req.TTL); until.After(e.until) {
		e.until = until
	}
	if e.state == held && e.session == sess {
		return driver.Entry{State: driver.Held, Token: e.token}, nil
	}
	return driver.Entry{State: driver.Waiting}, nil // If it was granted meanwhile, its owner is being notified.
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
