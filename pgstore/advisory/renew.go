package advisory

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// A renewal is a ping of a session, and the requests that it renews.
type renewal struct {
	session *session
	ttl     time.Duration // the longest
	parts   []renewalPart
	err     error // of the ping; none if the session has ended, which is an outcome
}

type renewalPart struct {
	index   int // of the request
	lease   *lease
	ttl     time.Duration
	outcome olddriver.RenewOutcome
}

// errAcquirePending is the error of a renewal of a hold that is still being acquired.
var errAcquirePending = errors.New("the acquisition has not been answered yet")

// Renew implements [olddriver.Store]. A session that replies holds all its locks, so one statement
// renews any number of them.
func (s *engine) Renew(ctx context.Context, reqs []olddriver.RenewRequest) ([]olddriver.RenewOutcome, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	outcomes := make([]olddriver.RenewOutcome, len(reqs))
	renewals, err := s.groupBySession(reqs, outcomes)
	answered := make(chan *renewal, len(renewals))
	for _, r := range renewals {
		s.sendRenewal(r, answered)
	}
	for range renewals {
		select {
		case r := <-answered:
			err = errors.Join(err, s.wrapErr(r.err))
			for _, part := range r.parts {
				outcomes[part.index] = part.outcome
			}
		case <-ctx.Done(): // One of them hangs.
			return outcomes, errors.Join(err, noAnswerErr(ctx))
		}
	}
	return outcomes, err
}

// renewOne renews a hold when its Acquire is repeated.
func (s *engine) renewOne(ctx context.Context, req *olddriver.AcquireRequest) (olddriver.RenewOutcome, error) {
	outcomes, err := s.Renew(ctx, []olddriver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: req.TTL}})
	if len(outcomes) == 0 {
		return olddriver.RenewUnknown, err
	}
	return outcomes[0], err
}

// groupBySession groups the requests by the sessions to ping, and sets the outcomes that need no
// ping.
func (s *engine) groupBySession(reqs []olddriver.RenewRequest, outcomes []olddriver.RenewOutcome) (
	map[*session]*renewal, error) {
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
		l := s.findLease(key, req.Name, req.Owner)
		switch {
		case l == nil || l.state == leaseUnlocking,
			l.state == leaseHeld && !time.Now().Before(l.until),
			l.state == leaseHeld && req.Token != 0 && l.token != 0 && req.Token != l.token:
			outcomes[i] = olddriver.RenewLost
			continue
		case l.state == leaseAcquiring:
			failed = errAcquirePending
			continue
		}
		r := renewals[l.session]
		if r == nil {
			r = &renewal{session: l.session}
			renewals[l.session] = r
		}
		r.ttl = max(r.ttl, req.TTL)
		r.parts = append(r.parts, renewalPart{index: i, lease: l, ttl: req.TTL})
	}
	return renewals, failed
}

// sendRenewal pings a session, and raises its idle timeout if necessary. The renewal is sent to
// answered when its parts have their outcomes.
func (s *engine) sendRenewal(r *renewal, answered chan<- *renewal) {
	want := idleTimeoutFor(r.ttl)
	s.mu.Lock()
	raise := want > r.session.idleTimeout
	s.mu.Unlock()
	done := func(value []byte, err error) {
		if err == nil && (len(value) != 4 || binary.BigEndian.Uint32(value) != r.session.pid) {
			err = fmt.Errorf("%w: a pooler has put another server process behind the connection",
				errSessionLost)
			r.session.closeNow()
		}
		s.onRenewed(r, err)
		answered <- r
	}
	if raise {
		s.raiseTimeout(r.session, want, done)
		return
	}
	r.session.sendStatement(statement{name: "holdfast_ping", done: done})
}

// onRenewed handles the reply to a renewal.
func (s *engine) onRenewed(r *renewal, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !errors.Is(err, errSessionLost) {
		r.err = err
	}
	for i := range r.parts {
		part := &r.parts[i]
		switch {
		case part.lease.state != leaseHeld || errors.Is(err, errSessionLost):
			part.outcome = olddriver.RenewLost
		case err == nil:
			part.outcome = olddriver.Renewed
			s.extendLease(part.lease, part.ttl)
		}
	}
}
