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

// An entry is a hold or a place of this Store. Store.mu guards the fields from session on.
type entry struct {
	owned
	key  Key
	gone chan struct{} // closed when it has nothing at the server any more

	session *session // that has the key, or waits for it
	state   entryState
	token   int64
	until   time.Time          // zero: its time is over, and it is being ended
	cancel  context.CancelFunc // ends the wait of a place
	kept    time.Time          // the server keeps the session of a place that was granted until then at least
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
	e := &entry{owned: owned{req.Name, req.Owner}, key: key, gone: make(chan struct{}), session: s.sessions[0]}
	s.mu.Lock()
	switch {
	case s.ctx.Err() != nil:
		err = driver.ErrClosed
	case s.owners[e.owned] != nil:
		err = errors.New("this owner has an entry already")
	default:
		s.owners[e.owned] = e
		if !s.watching {
			s.watching = true
			s.running.Go(s.watch)
		}
	}
	s.mu.Unlock()
	if err != nil {
		return res, err
	}
	c := &call{entry: e, function: try, ttl: req.TTL, place: req.Place}
	if err = e.session.do(ctx, c); errors.Is(err, batch.ErrNotSent) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drop(e)
		return res, driver.NotApplied(err)
	}
	if err != nil {
		return res, err
	}
	return driver.Result{Granted: c.done, Waiting: c.waiting, Token: c.token}, nil
}

// prolong gives an entry d from now at least. The caller holds Store.mu.
func (e *entry) prolong(d time.Duration) {
	if until := time.Now().Add(d); until.After(e.until) {
		e.until = until
	}
}

// keeps reports whether the server keeps the session of a grant for d, by the wall clock too: the
// other one stands still while the machine is suspended. The caller holds Store.mu.
func (e *entry) keeps(d time.Duration) bool {
	return time.Until(e.kept) > d && time.Until(e.kept.Round(0)) > d
}

// drop forgets an entry that has nothing at the server any more. The caller holds s.mu.
func (s *Store) drop(e *entry) {
	if s.owners[e.owned] != e {
		return
	}
	delete(s.owners, e.owned)
	e.session.entry = nil
	if s.keys[e.key] == e {
		delete(s.keys, e.key)
	}
	close(e.gone)
}

// place makes a spare session wait for the key of an entry. It drops the entry if there is none.
// The caller holds s.mu.
func (s *Store) place(e *entry, c *call) bool {
	i := slices.IndexFunc(s.sessions, func(sess *session) bool { return sess.entry == nil && sess != s.sessions[0] })
	if s.ctx.Err() != nil || c.place == 0 || i < 0 {
		s.drop(e)
		return false
	}
	sess := s.sessions[i]
	ctx, cancel := context.WithCancel(s.ctx)
	sess.entry, e.session, e.state, e.cancel = e, sess, waiting, cancel
	e.prolong(c.place)
	s.running.Go(func() {
		defer cancel()
		if !sess.wait(ctx, e, c.ttl) {
			_ = retry.Sleep(ctx, failurePause)
			s.mu.Lock()
			s.drop(e)
			s.mu.Unlock()
		}
		s.notices.Send(e.name, e.owner, 0)
	})
	return true
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
			if !e.until.IsZero() && !now.Before(e.until) {
				e.until = time.Time{}
				s.running.Go(func() {
					_, _ = s.end(s.ctx, e.owned) // After an error it is tried again.
					s.notices.Send(e.name, e.owner, 0)
					s.mu.Lock()
					defer s.mu.Unlock()
					e.until = now
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

// end ends the entry of an owner, and reports whether there was one that nobody else was ending.
func (s *Store) end(ctx context.Context, owner owned) (bool, error) {
	s.mu.Lock()
	e := s.owners[owner]
	if e == nil {
		s.mu.Unlock()
		return false, nil
	}
	state, sess := e.state, e.session
	if state == waiting {
		e.state = ending
		e.cancel()
	}
	s.mu.Unlock()
	switch state {
	case trying: // What is sent behind the attempt has a reply when the attempt has one.
		if err := sess.do(ctx, &call{}); err != nil {
			return false, err
		}
		return s.end(ctx, owner)
	case held:
		c := &call{entry: e, function: unlock}
		err := sess.do(ctx, c)
		return err == nil && c.done, err
	}
	select {
	case <-e.gone:
		return state == waiting, nil
	case <-ctx.Done():
		return false, fmt.Errorf("the end has no reply: %w", ctx.Err())
	}
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
		sess := s.sessions[0]
		switch e := s.owners[owned{req.Name, req.Owner}]; {
		case e == nil || e.state == ending:
			entries[i].State = driver.Lost
			continue
		case e.keeps(req.TTL):
			sess = nil
		case e.state == held:
			sess = e.session
		}
		asked[sess] = append(asked[sess], i)
	}
	s.mu.Unlock()
	var group sync.WaitGroup
	for sess, items := range asked {
		group.Go(func() {
			c := &call{}
			for _, i := range items {
				c.ttl = max(c.ttl, reqs[i].TTL)
			}
			var err error
			if sess != nil {
				err = sess.do(ctx, c)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, i := range items {
				e := s.owners[owned{reqs[i].Name, reqs[i].Owner}]
				switch {
				case e == nil || e.state == ending:
					entries[i].State = driver.Lost
				case err != nil:
					errs[i] = err
				case e.state == held && e.session != sess && !e.keeps(reqs[i].TTL):
					errs[i] = errors.New("the lock has just been granted")
				case !time.Now().Before(e.until) || reqs[i].Token != 0 && reqs[i].Token != e.token:
					entries[i].State = driver.Lost
				default:
					entries[i] = driver.Entry{State: driver.Waiting, Token: e.token}
					if e.state == held {
						entries[i].State = driver.Held
					}
					e.prolong(reqs[i].TTL)
				}
			}
		})
	}
	group.Wait()
	return entries, cmp.Or(errs...)
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
