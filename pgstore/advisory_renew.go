package pgstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A renewal is a sign of life that a session is asked for, and the requests that
// it is for.
type renewal struct {
	on     *session
	ttl    time.Duration // the longest
	parts  []renewalPart
	result chan error // of the asking, once the parts have their outcomes
}

type renewalPart struct {
	index   int // of the request
	claim   *claim
	ttl     time.Duration
	outcome driver.RenewOutcome
}

// errInFlux is the error of a renewal of a hold that is still being taken.
var errInFlux = errors.New("the acquisition has not been answered yet")

// Renew implements [driver.Store]. A session that answers holds all its locks,
// so that one statement renews any number of them.
func (s *AdvisoryStore) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.RenewOutcome, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	outcomes := make([]driver.RenewOutcome, len(reqs))
	renewals, err := s.sortOut(reqs, outcomes)
	for _, r := range renewals {
		s.ask(r)
	}
	for _, r := range renewals {
		select {
		case answer := <-r.result:
			err = errors.Join(err, s.fault(answer))
			for _, part := range r.parts {
				outcomes[part.index] = part.outcome
			}
		case <-ctx.Done():
			return outcomes, unanswered(ctx)
		}
	}
	return outcomes, err
}

// renewOne is the renewal of a hold by the repetition of its Acquire.
func (s *AdvisoryStore) renewOne(ctx context.Context, req *driver.AcquireRequest) (driver.RenewOutcome, error) {
	outcomes, err := s.Renew(ctx, []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: req.TTL}})
	if len(outcomes) == 0 {
		return driver.RenewUnknown, err
	}
	return outcomes[0], err
}

// sortOut finds the sessions that must be asked, and the outcomes for which none
// need be.
func (s *AdvisoryStore) sortOut(reqs []driver.RenewRequest, outcomes []driver.RenewOutcome) (map[*session]*renewal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var failed error
	renewals := map[*session]*renewal{}
	for i, req := range reqs {
		key, err := s.keys(req.Name)
		if err != nil {
			failed = err
			continue
		}
		c := s.claims[key]
		switch {
		case c == nil || c.name != req.Name || c.owner != req.Owner || c.state == giving || c.state == held && !time.Now().Before(c.until):
			outcomes[i] = driver.RenewLost
			continue
		case c.state == taking:
			failed = errInFlux
			continue
		}
		r := renewals[c.on]
		if r == nil {
			r = &renewal{on: c.on, result: make(chan error, 1)}
			renewals[c.on] = r
		}
		r.ttl = max(r.ttl, req.TTL)
		r.parts = append(r.parts, renewalPart{index: i, claim: c, ttl: req.TTL})
	}
	return renewals, failed
}

// ask asks a session for a sign of life, and has the server bear with it for
// longer if it must.
func (s *AdvisoryStore) ask(r *renewal) {
	want := limitFor(r.ttl)
	s.mu.Lock()
	raise := want > r.on.limit
	s.mu.Unlock()
	done := func(value []byte, err error) {
		if err == nil && (len(value) != 4 || binary.BigEndian.Uint32(value) != r.on.pid) {
			err = fmt.Errorf("%w: a pooler has put another server process behind the connection", errSessionLost)
			r.on.abandon()
		}
		s.renewed(r, err)
		r.result <- errAlive(err)
	}
	if raise {
		s.raise(r.on, want, done)
		return
	}
	r.on.send(statement{name: "holdfast_ping", done: done})
}

// errAlive leaves out an error that says that the session has ended: then the
// renewals have an outcome.
func errAlive(err error) error {
	if errors.Is(err, errSessionLost) {
		return nil
	}
	return err
}

// renewed is the answer to a renewal.
func (s *AdvisoryStore) renewed(r *renewal, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range r.parts {
		part := &r.parts[i]
		switch {
		case part.claim.state != held || errors.Is(err, errSessionLost):
			part.outcome = driver.RenewLost
		case err == nil:
			part.outcome = driver.Renewed
			s.keep(part.claim, part.ttl)
		}
	}
}
