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
// again, which is not to be a burden for a server without connections.
const failurePause = 250 * time.Millisecond

// An entry is a hold or a place of this Store. Store.mu guards the fields from session on.
type entry struct {
	owned
	holder string
	key    Key

	session *session // that has the key, or waits for it
	state   entryState
	token   int64
	since   time.Time
	until   time.Time          // zero: it is being ended
	kept    time.Time          // of a place that was granted: the server keeps it until then; zero after a renewal
	cancel  context.CancelFunc // ends the wait of a place
	gone    chan struct{}      // of a place, closed when it has nothing at the server any more
}

// owned is a name and one of its owners.
type owned struct{ name, owner string }

type entryState uint8

const (
	trying  entryState = iota // an attempt is under way
	waiting                   // its session waits for the key
	held
	unlocking // the key is being unlocked
	givenUp   // a place that nobody wants any more
	ended     // not in the Store
)

// Acquire implements [driver.Store]. The Record of a refusal describes a hold of this Store alone.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	e, err := s.enter(ctx, &req)
	if err != nil {
		return driver.Result{}, err
	}
	c := &call{entry: e, req: &req}
	if err = s.main.do(ctx, c); err == nil {
		return c.res, nil
	}
	if errors.Is(err, batch.ErrNotSent) {
		err = driver.NotApplied(err)
		s.mu.Lock()
		s.drop(e)
		s.mu.Unlock()
	}
	return driver.Result{}, err
}

// enter makes the entry of a request, and refuses what no advisory lock can do.
func (s *Store) enter(ctx context.Context, req *driver.Request) (*entry, error) {
	if err := errors.Join(s.checkUsable(ctx), lockqueue.Check(req)); err != nil {
		return nil, err
	}
	switch {
	case req.Tokens > 1:
		return nil, fmt.Errorf("%w: a grant has one token", driver.ErrInvalid)
	case req.Limit > 1:
		return nil, fmt.Errorf("%w: advisory locks are exclusive", driver.ErrUnsupported)
	case req.Detached:
		return nil, fmt.Errorf("%w: an advisory lock ends with its session", driver.ErrUnsupported)
	case len(req.Metadata) > 0:
		return nil, fmt.Errorf("%w: an advisory lock has no metadata", driver.ErrUnsupported)
	}
	key, err := s.options.Keys(req.Name)
	if err != nil {
		return nil, err
	}
	e := &entry{owned: owned{req.Name, req.Owner}, holder: req.Holder, key: key, session: s.main}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, driver.ErrClosed
	case s.owners[e.owned] != nil:
		return nil, errors.New("this owner has an entry already")
	}
	s.owners[e.owned] = e
	if !s.watching {
		s.watching = true
		s.running.Go(s.watch)
	}
	return e, nil
}

// prepare returns the calls whose keys the server is asked for, whether they need a connection, and
// the longest TTL. The server grants a session its own keys again, so that none may try a key that
// main has, or tries, unless it is unlocked before.
func (s *Store) prepare(calls []*call) (keyed []*call, connects bool, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range calls {
		e := c.entry
		switch {
		case c.renew != nil:
			ttl, connects = max(ttl, c.renew.TTL), connects || c.place
		case c.req != nil:
			ttl = max(ttl, c.req.TTL)
			if other := s.keys[e.key]; other == nil || other.state == unlocking {
				s.keys[e.key] = e
				keyed, connects = append(keyed, c), true
			}
		case e != nil && e.state == held:
			e.state = unlocking
			keyed = append(keyed, c)
		}
	}
	return keyed, connects, ttl
}

// complete records what a batch has changed.
func (s *Store) complete(sess *session, calls []*call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var failed error // of a try: those behind it in the batch were not sent, and have no answer
	for _, c := range calls {
		e := c.entry
		switch {
		case c.renew != nil:
			c.answer, c.err = c.renewed(sess)
		case c.req == nil:
			if c.err == nil && e != nil && e.state == unlocking {
				s.drop(e)
			}
		case c.err == nil && s.keys[e.key] == e && c.value != none:
			e.state, e.token, e.since = held, c.value, time.Now()
			e.prolong(c.req.TTL)
			c.res = driver.Result{Granted: true, Token: e.token}
		default:
			if s.keys[e.key] == e {
				delete(s.keys, e.key)
			} else if s.keys[e.key] == nil {
				c.err = cmp.Or(c.err, failed)
			}
			if c.err != nil {
				failed = c.err
				s.drop(e)
				continue
			}
			if other := s.holder(e.key); other != nil {
				c.res.Held = other.record()
			}
			c.res.Waiting = s.place(e, c.req)
		}
	}
}

// prolong gives an entry d from now at least. The caller holds Store.mu.
func (e *entry) prolong(d time.Duration) {
	if until := time.Now().Add(d); until.After(e.until) {
		e.until = until
	}
}

// drop forgets an entry that has nothing at the server any more. The caller holds s.mu.
func (s *Store) drop(e *entry) {
	if s.owners[e.owned] != e {
		return
	}
	delete(s.owners, e.owned)
	e.state = ended
	e.session.entry = nil
	if s.keys[e.key] == e {
		delete(s.keys, e.key)
	}
	if e.gone != nil {
		close(e.gone)
	}
}

// holder returns the entry of this Store that has a key, or tries it, or nil. The caller holds s.mu.
func (s *Store) holder(key Key) *entry {
	for _, sess := range s.waiters {
		if e := sess.entry; e != nil && e.key == key && (e.state == held || e.state == unlocking) {
			return e
		}
	}
	return s.keys[key]
}

// place makes a spare session wait for the key of an entry. It drops the entry if there is none.
// The caller holds s.mu.
func (s *Store) place(e *entry, req *driver.Request) bool {
	i := slices.IndexFunc(s.waiters, func(sess *session) bool { return sess.entry == nil })
	if s.closed || req.Place == 0 || i < 0 && len(s.waiters) >= s.options.MaxWaiters {
		s.drop(e)
		return false
	}
	if i < 0 {
		i, s.waiters = len(s.waiters), append(s.waiters, s.newSession())
	}
	sess := s.waiters[i]
	ctx, cancel := context.WithCancel(s.ctx)
	sess.entry, e.session, e.state, e.cancel, e.gone = e, sess, waiting, cancel, make(chan struct{})
	e.prolong(req.Place)
	s.running.Go(func() {
		defer cancel()
		kept := sess.wait(ctx, e, req.TTL)
		if kept.IsZero() {
			_ = retry.Sleep(ctx, failurePause)
		}
		s.mu.Lock()
		wanted, token := e.state != givenUp && !s.closed, int64(0)
		switch {
		case e.state == waiting || e.state == givenUp:
			s.drop(e)
		case e.state == held:
			if e.kept = kept; !e.until.After(kept) { // The owner may count on the end that was confirmed to it.
				token = e.token
			}
		}
		s.mu.Unlock()
		if wanted {
			s.notices.Send(e.name, e.owner, token)
		}
	})
	return true
}

// grant makes a place a hold, and reports whether it is still wanted.
func (s *Store) grant(e *entry, token int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.state == waiting {
		e.state, e.token, e.since = held, token, time.Now()
	}
	return e.state == held
}

// onLost drops what a session held when it was lost, and tells the owners.
func (s *Store) onLost(sess *session) {
	var lost []owned
	s.mu.Lock()
	s.orphans = append(s.orphans, sess.process)
	for _, e := range s.owners {
		if e.session == sess && (e.state == held || e.state == unlocking) {
			s.drop(e)
			lost = append(lost, e.owned)
		}
	}
	s.mu.Unlock()
	for _, owner := range lost {
		s.notices.Send(owner.name, owner.owner, 0)
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
			if (e.state == waiting || e.state == held) && !e.until.IsZero() && !now.Before(e.until) {
				e.until = time.Time{}
				s.running.Go(func() { s.expire(e) })
			}
		}
		s.mu.Unlock()
		var group sync.WaitGroup
		for _, sess := range s.sessions() {
			group.Go(func() {
				if sess.mu.TryLock() { // One that is in use fails by itself.
					sess.look()
					sess.mu.Unlock()
				}
			})
		}
		group.Wait()
	}
}

// expire ends an entry whose time is over.
func (s *Store) expire(e *entry) {
	ctx, cancel := context.WithTimeout(s.ctx, batchTimeout)
	defer cancel()
	if _, err := s.end(ctx, e.owned); err == nil {
		s.notices.Send(e.name, e.owner, 0)
		return
	}
	s.mu.Lock()
	e.until = time.Now() // It is tried again.
	s.mu.Unlock()
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

// end ends the entry of an owner, and reports whether there was one.
func (s *Store) end(ctx context.Context, owner owned) (bool, error) {
	for {
		s.mu.Lock()
		e := s.owners[owner]
		if e == nil || e.state >= unlocking {
			s.mu.Unlock()
			return false, nil
		}
		state, sess := e.state, e.session
		if state == waiting {
			e.state = givenUp
		}
		s.mu.Unlock()
		switch state {
		case trying: // What is sent behind the attempt has a reply when the attempt has one.
			if err := sess.do(ctx, &call{}); err != nil {
				return false, err
			}
		case held, unlocking:
			c := &call{entry: e, value: none}
			err := sess.do(ctx, c)
			return err == nil && c.value != none, err
		default:
			e.cancel()
			select {
			case <-e.gone:
				return state == waiting, nil
			case <-ctx.Done():
				return false, fmt.Errorf("the end of the wait has no reply: %w", ctx.Err())
			}
		}
	}
}

// Renew implements [driver.Store]. It asks the server once for each session, whatever the number of
// its locks, and has it keep the session for the longest TTL. The session of a place cannot be
// asked, since it waits: another one shows that the server replies. Nothing is asked for the first
// renewal after the grant of a place, if the server keeps its session for longer than that anyway.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	entries, errs := make([]driver.Entry, len(reqs)), make([]error, len(reqs))
	batches := map[*session][]*call{}
	s.mu.Lock()
	for i := range reqs {
		e := s.owners[owned{reqs[i].Name, reqs[i].Owner}]
		if e == nil || e.state >= unlocking {
			entries[i].State = driver.Lost
			continue
		}
		c, sess := &call{entry: e, renew: &reqs[i], item: i, place: e.state == waiting}, e.session
		switch {
		case c.place:
			sess = s.main
		case !e.kept.Before(time.Now().Add(reqs[i].TTL)):
			entries[i], errs[i] = c.renewed(sess)
			continue
		}
		batches[sess] = append(batches[sess], c)
	}
	s.mu.Unlock()
	var group sync.WaitGroup
	for sess, calls := range batches {
		group.Go(func() {
			err := sess.queue.Do(ctx, calls...)
			for _, c := range calls {
				if errs[c.item] = err; err == nil {
					entries[c.item], errs[c.item] = c.answer, c.err
				}
			}
		})
	}
	group.Wait()
	return entries, cmp.Or(errs...)
}

// renewed prolongs the entry of a call that a session has carried out, or not if there is an error,
// and answers for it. The caller holds Store.mu.
func (c *call) renewed(sess *session) (driver.Entry, error) {
	e := c.entry
	switch {
	case e.state >= unlocking:
		return driver.Entry{State: driver.Lost}, nil
	case c.err != nil:
		return driver.Entry{}, c.err
	case e.state == trying, e.state == held && e.session != sess:
		return driver.Entry{}, errors.New("the acquisition is under way")
	case !time.Now().Before(e.until) || c.renew.Token != 0 && c.renew.Token != e.token:
		return driver.Entry{State: driver.Lost}, nil
	}
	e.prolong(c.renew.TTL)
	e.kept = time.Time{}
	if e.state == waiting {
		return driver.Entry{State: driver.Waiting}, nil
	}
	return driver.Entry{State: driver.Held, Token: e.token}, nil
}

// List implements [driver.Store].
func (s *Store) List(ctx context.Context, _ string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		err := s.checkUsable(ctx)
		if err == nil {
			err = fmt.Errorf("%w: the server knows the keys of advisory locks, and not their names", driver.ErrUnsupported)
		}
		yield(driver.Record{}, err)
	}
}

// Break implements [driver.Store].
func (s *Store) Break(ctx context.Context, _ string, _ int64) ([]driver.Record, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: pg_terminate_backend ends a session with all its advisory locks (Locks shows its PID)", driver.ErrUnsupported)
}

// record describes a hold. The caller holds Store.mu.
func (e *entry) record() driver.Record {
	if e.state != held && e.state != unlocking {
		return driver.Record{}
	}
	return driver.Record{
		Name: e.name, Holder: e.holder, Token: e.token, Since: e.since.Round(0),
		Remaining: max(time.Until(e.until), 1),
	}
}
