package advisory

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// An entry is a hold or a place of this Store. Its fields below state are guarded by Store.mu.
type entry struct {
	owned
	holder string
	key    Key
	ttl    time.Duration

	state   entryState
	session *session // that locks the key
	token   int64
	since   time.Time
	until   time.Time
	timer   *time.Timer
	known   chan struct{} // closed, and nil, when an attempt has its reply
	settled chan struct{} // closed when an entry that is ending has nothing at the server any more
}

// owned is a name and one of its owners.
type owned struct{ name, owner string }

type entryState uint8

const (
	acquiring entryState = iota // an attempt is under way
	waiting                     // a session waits for the key
	held
	ending // nobody's any more, and the key may still be locked
)

func (e *entry) stopTimer() {
	if e.timer != nil {
		e.timer.Stop()
	}
}

// know records that the attempt has its reply. The caller holds Store.mu.
func (e *entry) know() {
	if e.known != nil {
		close(e.known)
		e.known = nil
	}
}

// lasts gives the entry d from now at least. The caller holds Store.mu.
func (s *Store) lasts(e *entry, d time.Duration) {
	if until := time.Now().Add(d); until.After(e.until) {
		e.until = until
	}
	if e.timer == nil {
		e.timer = time.AfterFunc(d, func() { s.onTimer(e) })
	}
}

// onTimer ends an entry whose time is over.
func (s *Store) onTimer(e *entry) {
	s.mu.Lock()
	state, left := e.state, time.Until(e.until)
	if s.closed || state != held && state != waiting {
		s.mu.Unlock()
		return
	}
	if left > 0 {
		e.timer.Reset(left)
		s.mu.Unlock()
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, statementTimeout)
	defer cancel()
	s.running.Add(1)
	defer s.running.Done()
	s.mu.Unlock()
	_, _ = s.end(ctx, e) // If it fails, the session is lost, and the lock with it.
	s.notices.Send(e.name, e.owner, 0)
}

// Acquire implements [driver.Store]. The Record of a refusal describes a hold of this Store alone.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (res driver.Result, err error) {
	if err := s.checkRequest(ctx, &req); err != nil {
		return res, err
	}
	key, err := s.options.Keys(req.Name)
	if err != nil {
		return res, err
	}
	sess, err := s.mainSession(ctx)
	if err != nil {
		return res, driver.NotApplied(s.wrapErr(err))
	}
	e := &entry{
		owned: owned{req.Name, req.Owner}, holder: req.Holder, key: key, ttl: req.TTL,
		session: sess, since: time.Now(), known: make(chan struct{}), settled: make(chan struct{}),
	}
	s.mu.Lock()
	if err := s.admit(e); err != nil {
		s.mu.Unlock()
		return res, err
	}
	s.owners[e.owned] = e
	for other := s.onKey(key); other != nil; other = s.onKey(key) {
		if other.state != held { // Until it is known what it has, nobody is refused for it.
			changed := other.settled
			if other.known != nil {
				changed = other.known
			}
			s.mu.Unlock()
			select {
			case <-changed:
				s.mu.Lock()
				continue
			case <-ctx.Done():
				s.mu.Lock()
				defer s.mu.Unlock()
				s.forget(e)
				return res, driver.NotApplied(fmt.Errorf("another attempt has no reply: %w", ctx.Err()))
			}
		}
		res.Held = other.record()
		res.Waiting = s.place(e, req.Place)
		s.mu.Unlock()
		return res, nil
	}
	s.entries[key] = e
	s.mu.Unlock()

	op := sess.send(&operation{verb: try, key: key, ttl: req.TTL, floor: req.Floor})
	select {
	case <-op.done:
	case <-ctx.Done():
		s.abandon(e, op)
		return res, fmt.Errorf("no reply in time: %w", ctx.Err())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case op.err != nil:
		s.forget(e)
		return res, s.wrapErr(op.err)
	case !op.ok:
		if s.entries[key] == e {
			delete(s.entries, key)
		}
		res.Waiting = s.place(e, req.Place)
	case e.state == ending: // The session was lost after the grant.
		return res, errSessionLost
	default:
		e.state, e.token = held, op.value
		e.know()
		s.lasts(e, req.TTL)
		res.Granted, res.Token = true, e.token
	}
	return res, nil
}

// checkRequest refuses what no advisory lock can do.
func (s *Store) checkRequest(ctx context.Context, req *driver.Request) error {
	if err := s.checkUsable(ctx); err != nil {
		return err
	}
	switch {
	case req.Owner == "":
		return fmt.Errorf("%w: no owner", driver.ErrInvalid)
	case req.Limit > 1:
		return fmt.Errorf("%w: advisory locks are exclusive", driver.ErrUnsupported)
	case req.Detached:
		return fmt.Errorf("%w: an advisory lock ends with its session", driver.ErrUnsupported)
	case len(req.Metadata) > 0:
		return fmt.Errorf("%w: an advisory lock has no metadata", driver.ErrUnsupported)
	case req.Tokens > 1:
		return fmt.Errorf("%w: a grant has one token", driver.ErrInvalid)
	case req.Floor > 0 && req.Place > 0:
		return fmt.Errorf("%w: a floor with a place", driver.ErrInvalid)
	}
	return nil
}

// admit refuses an entry that there is already, and one too many. The caller holds s.mu.
func (s *Store) admit(e *entry) error {
	if s.closed {
		return driver.ErrClosed
	}
	if s.owners[e.owned] != nil {
		return errors.New("this owner has an entry already")
	}
	most := s.options.MaxLocks
	if most == 0 {
		most = s.capacity / 2
	}
	if len(s.owners) >= most {
		return fmt.Errorf("%w: the store has %d locks, the most that it may have, since the server's lock table has room for about %d: "+
			"see Options.MaxLocks and max_locks_per_transaction", driver.ErrNotApplied, len(s.owners), s.capacity)
	}
	return nil
}

// forget drops an entry that has nothing at the server. The caller holds s.mu.
func (s *Store) forget(e *entry) {
	e.stopTimer()
	e.state = ending
	e.know()
	if s.owners[e.owned] == e {
		delete(s.owners, e.owned)
		close(e.settled)
	}
	if s.entries[e.key] == e {
		delete(s.entries, e.key)
	}
	if s.waited[e.key] == e {
		delete(s.waited, e.key)
	}
}

// onKey returns what has a key in this Store, nil if nothing has. The caller holds s.mu.
func (s *Store) onKey(key Key) *entry {
	if e := s.waited[key]; e != nil {
		return e
	}
	return s.entries[key]
}

// abandon undoes an attempt that nobody waits for any more.
func (s *Store) abandon(e *entry, op *operation) {
	s.mu.Lock()
	e.state = ending
	if s.closed { // The lock ends with the session.
		s.mu.Unlock()
		return
	}
	s.running.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.running.Done()
		<-op.done
		if op.ok {
			<-e.session.send(&operation{verb: unlock, key: e.key}).done
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forget(e)
	}()
}

// place makes a session wait for the key of an entry, or forgets the entry if there is no session to
// wait. The caller holds s.mu.
func (s *Store) place(e *entry, lasts time.Duration) bool {
	if s.closed || lasts == 0 || len(s.spare) == 0 && s.waiters >= s.options.MaxWaiters {
		s.forget(e)
		return false
	}
	e.session = nil
	if n := len(s.spare); n > 0 {
		e.session, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		s.waiters++
	}
	e.state = waiting
	e.know()
	s.lasts(e, lasts)
	s.running.Add(1)
	go s.wait(e, e.session)
	return true
}

// wait has a session wait for the key of an entry, and tells the owner when it is granted.
func (s *Store) wait(e *entry, sess *session) {
	defer s.running.Done()
	var err error
	if sess == nil {
		sess, err = s.openSession(s.ctx, func() { s.waiters-- })
	}
	if err == nil {
		s.mu.Lock()
		e.session = sess
		s.mu.Unlock()
		op := &operation{verb: wait, key: e.key, ttl: e.ttl}
		op.ended = func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return e.state != waiting
		}
		op.granted = func(token int64) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			if e.state == waiting {
				e.state, e.token, e.since, s.waited[e.key] = held, token, time.Now(), e
			}
			return e.state == held
		}
		<-sess.send(op).done
		err = op.err
	}
	if err != nil {
		s.mu.Lock()
		wanted := e.state == waiting && !s.closed
		s.forget(e)
		s.mu.Unlock()
		if sess != nil {
			sess.close() // A cancellation may still be on its way to it.
		}
		if !wanted {
			return
		}
	}
	s.notices.Send(e.name, e.owner, 0)
}

// end ends a hold or a place, and returns when the server has confirmed it.
func (s *Store) end(ctx context.Context, e *entry) (bool, error) {
	s.mu.Lock()
	state := e.state
	if state == waiting || state == held {
		e.state = ending
		e.stopTimer()
	}
	sess := e.session
	s.mu.Unlock()
	var op *operation
	if state == held {
		op = sess.send(&operation{verb: unlock, key: e.key})
		s.mu.Lock()
		closed := s.closed
		if !closed {
			s.running.Add(1)
		}
		s.mu.Unlock()
		finish := func() {
			<-op.done
			s.mu.Lock()
			defer s.mu.Unlock()
			s.forget(e)
			if sess != s.main && op.err == nil && !s.closed {
				s.spare = append(s.spare, sess)
			}
			if !closed {
				s.running.Done()
			}
		}
		select {
		case <-op.done:
			finish()
			return op.err == nil && op.value == 1, s.wrapErr(op.err)
		case <-ctx.Done():
			go finish()
			return false, fmt.Errorf("no reply in time: %w", ctx.Err())
		}
	}
	for { // A cancellation that comes before the statement has no effect, and is sent again.
		s.mu.Lock()
		sess = e.session
		s.mu.Unlock()
		if state == waiting && sess != nil {
			sess.cancel()
		}
		select {
		case <-e.settled:
			return state == waiting, nil
		case <-ctx.Done():
			return false, fmt.Errorf("no reply in time: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
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
	s.mu.Lock()
	e := s.owners[owned{req.Name, req.Owner}]
	s.mu.Unlock()
	if e == nil {
		return false, nil
	}
	return s.end(ctx, e)
}

// Renew implements [driver.Store]. It checks each session once, for all its locks.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	longest := map[*session]time.Duration{}
	s.mu.Lock()
	for _, req := range reqs {
		if e := s.entryOf(&req); e != nil && e.state == held {
			longest[e.session] = max(longest[e.session], req.TTL)
		}
	}
	s.mu.Unlock()
	pings := map[*session]*operation{}
	for sess, ttl := range longest {
		pings[sess] = sess.send(&operation{verb: ping, ttl: ttl})
	}
	var failed error
	for sess, op := range pings {
		select {
		case <-op.done:
			if op.err != nil {
				failed = s.wrapErr(op.err)
				delete(pings, sess)
			}
		case <-ctx.Done():
			failed = fmt.Errorf("no reply in time: %w", ctx.Err())
			delete(pings, sess)
		}
	}
	entries := make([]driver.Entry, len(reqs))
	s.mu.Lock()
	defer s.mu.Unlock()
	unknown := false
	for i, req := range reqs {
		e := s.entryOf(&req)
		switch {
		case e == nil:
			entries[i].State = driver.Lost
		case e.state == waiting:
			s.lasts(e, req.TTL)
			entries[i].State = driver.Waiting
		case pings[e.session] == nil && longest[e.session] > 0:
			unknown = true
		default: // A hold that was granted meanwhile was not checked, and is as new.
			s.lasts(e, req.TTL)
			entries[i] = driver.Entry{State: driver.Held, Token: e.token}
		}
	}
	if !unknown {
		failed = nil
	}
	return entries, failed
}

// entryOf returns the entry that a renewal means, nil if there is none. The caller holds s.mu.
func (s *Store) entryOf(req *driver.RenewRequest) *entry {
	e := s.owners[owned{req.Name, req.Owner}]
	if e == nil || e.state != held && e.state != waiting || !time.Now().Before(e.until) ||
		req.Token != 0 && req.Token != e.token {
		return nil
	}
	return e
}

// List implements [driver.Store].
func (s *Store) List(context.Context, string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		err := fmt.Errorf("%w: the server knows the keys of advisory locks, and not their names", driver.ErrUnsupported)
		if s.checkUsable(context.Background()) != nil {
			err = s.checkUsable(context.Background())
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
	if e.state != held {
		return driver.Record{}
	}
	return driver.Record{
		Name: e.name, Holder: e.holder, Token: e.token, Since: e.since.Round(0),
		Remaining: max(time.Until(e.until), 1),
	}
}
