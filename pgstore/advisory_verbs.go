package pgstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Acquire implements [driver.Store].
func (s *AdvisoryStore) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	key, err := s.admit(ctx, &req)
	if err != nil {
		return driver.AcquireResult{}, err
	}
	for {
		found := s.enter(key, &req)
		switch {
		case found.fresh:
			return s.take(ctx, found.claim, &req)
		case found.settled != nil:
			if err := settle(ctx, found.settled); err != nil {
				return driver.AcquireResult{}, err
			}
		case found.claim == nil:
			return driver.AcquireResult{Held: found.other}, nil
		default:
			outcome, err := s.renewOne(ctx, &req)
			if outcome != driver.RenewLost {
				return driver.AcquireResult{Granted: outcome == driver.Renewed, Token: found.claim.token}, err
			}
		}
	}
}

// admit checks a request, and makes the key.
func (s *AdvisoryStore) admit(ctx context.Context, req *driver.AcquireRequest) (Key, error) {
	switch err := s.usable(ctx); {
	case err != nil:
		return Key{}, err
	case req.Detached:
		return Key{}, fmt.Errorf("%w: an advisory lock ends with the session that holds it", driver.ErrUnsupported)
	case req.Floor > driver.MaxToken:
		return Key{}, fmt.Errorf("%w: no token above the floor is left", driver.ErrInvalid)
	}
	if err := checkOwner(req.Owner); err != nil {
		return Key{}, err
	}
	return s.keys(req.Name)
}

// An entry is what a caller finds who wants a key: a fresh claim of his own, one
// in flux, his own hold, or somebody else's.
type entry struct {
	claim   *claim
	fresh   bool
	settled <-chan struct{}
	other   driver.Record
}

// enter makes a claim on a key that nobody in this store has to do with. A hold
// whose time is over is given back.
func (s *AdvisoryStore) enter(key Key, req *driver.AcquireRequest) entry {
	s.mu.Lock()
	c := s.claims[key]
	if c != nil && c.state == held && !time.Now().Before(c.until) {
		return entry{settled: s.giveBack(c)}
	}
	defer s.mu.Unlock()
	switch {
	case c == nil:
		c = &claim{key: key, name: req.Name, owner: req.Owner, holder: req.Holder, settled: make(chan struct{})}
		s.claims[key] = c
		return entry{claim: c, fresh: true}
	case c.inFlux():
		return entry{settled: c.settled}
	case c.owner == req.Owner && c.name == req.Name:
		return entry{claim: c}
	}
	return entry{other: c.record()}
}

// settle waits until a claim is no longer in flux. What was begun goes on when
// it returns an error.
func settle(ctx context.Context, settled <-chan struct{}) error {
	select {
	case <-settled:
		return nil
	case <-ctx.Done():
		return unanswered(ctx)
	}
}

func unanswered(ctx context.Context) error {
	return fmt.Errorf("no answer from PostgreSQL: %w", ctx.Err())
}

// take asks the server for the key of a new claim.
func (s *AdvisoryStore) take(ctx context.Context, c *claim, req *driver.AcquireRequest) (driver.AcquireResult, error) {
	settled := c.settled
	on, err := s.place(ctx, c, req.TTL)
	if err != nil {
		s.mu.Lock()
		s.drop(c)
		s.mu.Unlock()
		return driver.AcquireResult{}, err
	}
	ttl, floor := req.TTL, req.Floor
	on.send(c.try(func(value []byte, err error) { s.tried(c, ttl, floor, value, err) }))
	if err := settle(ctx, settled); err != nil {
		return driver.AcquireResult{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.err != nil {
		return driver.AcquireResult{}, s.fault(c.err)
	}
	return driver.AcquireResult{Granted: c.token != refused, Token: max(c.token, 0)}, nil
}

// refused is the token of a claim on a key that another session has.
const refused = -1

// tried is the answer to an attempt: the token, 0 if there are none, or NULL if
// somebody else has the key.
func (s *AdvisoryStore) tried(c *claim, ttl time.Duration, floor int64, value []byte, err error) {
	s.mu.Lock()
	switch {
	case c.state == gone: // with its session
	case err != nil:
		// The key may have been taken before something failed.
		c.err = err
		s.giveBack(c)
		return
	case len(value) != 8:
		c.token = refused
		s.drop(c)
	default:
		c.token = int64(binary.BigEndian.Uint64(value))
		if s.options.TokenSequence != "" && c.token < floor {
			s.mu.Unlock()
			s.lift(c, ttl, floor)
			return
		}
		s.granted(c, ttl)
	}
	s.mu.Unlock()
}

// granted makes a claim a hold. The caller holds s.mu.
func (s *AdvisoryStore) granted(c *claim, ttl time.Duration) {
	c.state = held
	c.since = time.Now()
	s.keep(c, ttl)
	close(c.settled)
}

// Release implements [driver.Store].
func (s *AdvisoryStore) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if err := s.usable(ctx); err != nil {
		return false, err
	}
	if req.Keep > 0 {
		return false, fmt.Errorf("%w: an advisory lock cannot be kept after its release", driver.ErrUnsupported)
	}
	key, err := s.keys(req.Name)
	if err != nil {
		return false, err
	}
	for {
		s.mu.Lock()
		c := s.claims[key]
		if c == nil || c.name != req.Name || c.owner != req.Owner {
			s.mu.Unlock()
			return false, nil
		}
		if c.state == held {
			inTime := time.Now().Before(c.until)
			if err := settle(ctx, s.giveBack(c)); err != nil {
				return false, err
			}
			return inTime && c.ours, s.fault(c.err)
		}
		settled := c.settled
		s.mu.Unlock()
		if err := settle(ctx, settled); err != nil {
			return false, err
		}
	}
}

// Lookup implements [driver.Store]. It returns ErrUnsupported: see
// [AdvisoryStore.Locks].
func (s *AdvisoryStore) Lookup(ctx context.Context, _ string) (driver.Record, bool, error) {
	return driver.Record{}, false, s.unsupported(ctx, "an advisory lock has no name: AdvisoryStore.Locks shows keys and processes")
}

// List implements [driver.Store]. It yields ErrUnsupported: see
// [AdvisoryStore.Locks].
func (s *AdvisoryStore) List(ctx context.Context, _ string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		yield(driver.Record{}, s.unsupported(ctx, "an advisory lock has no name: AdvisoryStore.Locks shows keys and processes"))
	}
}

// Break implements [driver.Store]. It returns ErrUnsupported: a session can only
// be ended with all its locks, by pg_terminate_backend.
func (s *AdvisoryStore) Break(ctx context.Context, _ string) (driver.Record, bool, error) {
	return driver.Record{}, false, s.unsupported(ctx, "only a whole session can be ended, by pg_terminate_backend with a PID of AdvisoryStore.Locks")
}

func (s *AdvisoryStore) unsupported(ctx context.Context, why string) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	return fmt.Errorf("%w: %s", driver.ErrUnsupported, why)
}
