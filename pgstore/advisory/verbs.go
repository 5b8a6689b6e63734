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
)

// failurePause is how long a place lasts that cannot wait in the server. Its owner then tries
// again. The pause limits the load on a server that has no connections left.
const failurePause = 250 * time.Millisecond

// An entry is a hold or a place of this Store, or an attempt at a hold. Store.mu guards the fields
// from state on.
type entry struct {
	owned
	key     Key
	session *session           // that has the key, or tries to get it
	cancel  context.CancelFunc // ends the wait of a place

	state entryState
	token int64
	until time.Time // its end, and, while it is being ended, when that is tried again
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
	if err = errors.Join(s.checkUsable(ctx), lockqueue.Check(&req)); err != nil {
		return res, err
	}
	switch {
	case req.Tokens > 1:
		return res, fmt.Errorf("%w: a grant has one token", driver.ErrInvalid)
	case req.Limit > 1 || req.Floor > 0 || len(req.Metadata) > 0:
		return res, fmt.Errorf("%w: an advisory lock is exclusive, and has neither metadata nor a floor of its tokens", driver.ErrUnsupported)
	case req.Detached:
		return res, fmt.Errorf("%w: an advisory lock ends with its session", driver.ErrUnsupported)
	}
	key, err := s.options.Keys(req.Name)
	if err != nil {
		return res, err
	}
	e := &entry{owned: owned{req.Name, req.Owner}, key: key, session: s.sessions[0], until: time.Now().Add(req.TTL + batchTimeout)}
	s.mu.Lock()
	err = s.enter(e)
	s.mu.Unlock()
	if err != nil {
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
	return driver.Result{Waiting: req.Place > 0 && s.place(req, key)}, nil
}

// enter records the entry of a new owner, and has it watched. The caller holds s.mu.
func (s *Store) enter(e *entry) error {
	switch {
	case s.ctx.Err() != nil:
		return driver.ErrClosed
	case s.owners[e.owned] != nil:
		return errors.New("this owner has an entry already")
	}
	s.owners[e.owned] = e
	if !s.watching {
		s.watching = true
		s.running.Go(s.watch)
	}
	return nil
}

// place makes a spare session wait for a key, and reports whether there is one.
func (s *Store) place(req driver.Request, key Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.sessions, func(sess *session) bool { return sess != s.sessions[0] && len(sess.keys) == 0 })
	if i < 0 {
		return false
	}
	sess := s.sessions[i]
	ctx, cancel := context.WithCancel(s.ctx)
	e := &entry{owned: owned{req.Name, req.Owner}, key: key, session: sess, cancel: cancel, state: waiting, until: time.Now().Add(req.Place)}
	if s.enter(e) != nil {
		cancel()
		return false
	}
	sess.keys[key] = e
	s.running.Go(func() {
		defer cancel()
		if !sess.wait(ctx, e, req.TTL) {
			_ = retry.Sleep(ctx, failurePause)
			s.mu.Lock()
			s.drop(e)
			s.mu.Unlock()
		}
		s.notices.Send(e.name, e.owner, 0)
	})
	return true
}

// drop forgets an entry that has nothing at the server any more. The caller holds s.mu.
func (s *Store) drop(e *entry) {
	if s.owners[e.owned] == e {
		delete(s.owners, e.owned)
	}
	e.session.unlist(e)
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
				sess.look()
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
// follows what the session does for the entry: an attempt until it has a reply, a wait until the
// cancellation has one.
func (s *Store) end(ctx context.Context, owner owned) (bool, error) {
	s.mu.Lock()
	e := s.owners[owner]
	if e == nil {
		s.mu.Unlock()
		return false, nil
	}
	placed := e.state == waiting
	e.state = ending
	if e.cancel != nil {
		e.cancel()
	}
	s.mu.Unlock()
	c := &call{function: unlock, entry: e}
	err := e.session.do(ctx, c)
	return err == nil && (c.done || placed), err
}

// Renew implements [driver.Store]. It asks the server once for each session, whatever the number of
// its locks, and has it keep the session for the longest TTL. The session of a place cannot be
// asked, since it waits: the first one shows that the server replies, behind all attempts. Nothing
// is asked within a second of the beginning of a wait that has ended with a grant.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	entries, errs := make([]driver.Entry, len(reqs)), make([]error, len(reqs))
	asked := map[*session][]int{}
	s.mu.Lock()
	for i, req := range reqs {
		switch e := s.owners[owned{req.Name, req.Owner}]; {
		case e == nil:
			entries[i].State = driver.Lost
		case e.state == held && e.session.keeps(req.TTL):
			entries[i], errs[i] = s.prolong(req, e.session, nil)
		case e.state == held:
			asked[e.session] = append(asked[e.session], i)
		default:
			asked[s.sessions[0]] = append(asked[s.sessions[0]], i)
		}
	}
	s.mu.Unlock()
	var group sync.WaitGroup
	for sess, items := range asked {
		group.Go(func() {
			c := &call{function: ping}
			for _, i := range items {
				c.ttl = max(c.ttl, reqs[i].TTL)
			}
			err := sess.do(ctx, c)
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, i := range items {
				entries[i], errs[i] = s.prolong(reqs[i], sess, err)
			}
		})
	}
	group.Wait()
	return entries, cmp.Or(errs...)
}

// prolong applies the answer of a session to a renewal, and returns the entry. A place that was
// granted meanwhile, in a session of its own, is still one: its owner is being notified. The caller
// holds s.mu.
func (s *Store) prolong(req driver.RenewRequest, sess *session, err error) (driver.Entry, error) {
	e, now := s.owners[owned{req.Name, req.Owner}], time.Now()
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
	return driver.Entry{State: driver.Waiting}, nil
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
