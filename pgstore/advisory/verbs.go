package advisory

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// Acquire implements [olddriver.Store]. The first one of an owner that waits makes two attempts if the
// name is held: what notifies the owner costs a statement, and is begun between them. Later ones of
// the owner make one attempt.
func (s *engine) Acquire(ctx context.Context, req olddriver.AcquireRequest) (olddriver.AcquireResult, error) {
	key, err := s.checkAcquire(ctx, &req)
	if err != nil {
		return olddriver.AcquireResult{}, err
	}
	waits := req.Queue > 0
	queued := waits && s.prolongWaiter(key, &req)
	res, err := s.acquireNow(ctx, key, &req, queued)
	if waits && !queued && err == nil && !res.Granted && s.startWaiter(ctx, key, &req) {
		queued = true
		res, err = s.acquireNow(ctx, key, &req, true)
	}
	if res.Granted {
		s.stopWaiting(ctx, key, req.Name, req.Owner)
	}
	res.Queued = queued && err == nil && !res.Granted
	if res.Queued && req.Limit == 0 {
		s.closeGate(ctx, key, &req, res.Held.Limit == olddriver.Shared)
	}
	return res, err
}

// acquireNow makes an attempt to take a name. It adds a lease for the key unless one is in the way.
// An expired one is unlocked first. The attempt of an owner that waits reports whether shared holds
// are in the way.
func (s *engine) acquireNow(
	ctx context.Context, key Key, req *olddriver.AcquireRequest, waits bool,
) (olddriver.AcquireResult, error) {
	for {
		s.mu.Lock()
		l := s.findLease(key, req.Name, req.Owner)
		own := l != nil
		if !own {
			l = s.leaseInWay(key, req.Limit != 0)
		}
		if l == nil {
			l = &lease{
				key: key, name: req.Name, owner: req.Owner, holder: req.Holder,
				shared: req.Limit != 0, probes: waits, done: make(chan struct{}),
			}
			s.leases[key] = append(s.leases[key], l)
			s.mu.Unlock()
			return s.acquireKey(ctx, l, req)
		}
		var done <-chan struct{} = l.done
		switch {
		case l.pending():
			s.mu.Unlock()
		case !time.Now().Before(l.until):
			done = s.unlockLease(l)
		case own:
			s.mu.Unlock()
			if outcome, err := s.renewOne(ctx, req); outcome != olddriver.RenewLost {
				return olddriver.AcquireResult{Granted: outcome == olddriver.Renewed, Token: l.token}, err
			}
			continue
		default:
			defer s.mu.Unlock()
			return olddriver.AcquireResult{Held: l.publicRecord()}, nil
		}
		if err := waitUntilDone(ctx, done); err != nil {
			return olddriver.AcquireResult{}, err
		}
	}
}

// checkAcquire checks a request, and makes the key.
func (s *engine) checkAcquire(ctx context.Context, req *olddriver.AcquireRequest) (Key, error) {
	switch err := s.checkUsable(ctx); {
	case err != nil:
		return Key{}, err
	case req.Detached:
		return Key{}, fmt.Errorf("%w: an advisory lock ends with the session that holds it", driver.ErrUnsupported)
	case req.Claim || req.Limit > 0:
		return Key{}, fmt.Errorf("%w: an advisory lock is exclusive or shared, and has neither a queue nor a limit", driver.ErrUnsupported)
	case req.Floor > driver.MaxToken:
		return Key{}, fmt.Errorf("%w: no token above the floor is left", driver.ErrInvalid)
	}
	if err := pgclient.CheckOwner(req.Owner); err != nil {
		return Key{}, err
	}
	return s.keys(req.Name)
}

// waitUntilDone waits until a lease is no longer pending. After an error the operation goes on.
func waitUntilDone(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return noAnswerErr(ctx)
	}
}

func noAnswerErr(ctx context.Context) error {
	return fmt.Errorf("no answer from PostgreSQL: %w", ctx.Err())
}

// acquireKey sends the statement that locks the key of a new lease.
func (s *engine) acquireKey(ctx context.Context, l *lease, req *olddriver.AcquireRequest) (olddriver.AcquireResult, error) {
	done := l.done
	sess, err := s.assignSession(ctx, l, req.TTL)
	if err != nil {
		s.mu.Lock()
		s.removeLease(l)
		s.mu.Unlock()
		return olddriver.AcquireResult{}, err
	}
	ttl, floor := req.TTL, req.Floor
	try := l.tryLockStatement(func(value []byte, err error) { s.onTried(l, ttl, floor, value, err) })
	try.ownTransaction = s.options.TokenSequence != "" && !l.shared // Its end waits until the token is on disk.
	sess.sendStatement(try)
	if err := waitUntilDone(ctx, done); err != nil {
		return olddriver.AcquireResult{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.err != nil {
		return olddriver.AcquireResult{}, s.wrapErr(l.err)
	}
	res := olddriver.AcquireResult{Granted: l.token >= 0, Token: max(l.token, 0)}
	if l.token == tokenBehindShared {
		res.Held.Limit = olddriver.Shared
	}
	return res, nil
}

// tokenRefused is the token of a lease on a key that another session has, and tokenBehindShared
// that of one that probes, if it could have had a shared lock.
const (
	tokenRefused      = -1
	tokenBehindShared = -2
)

// onTried handles the reply to an attempt: the token, 0 if there are no tokens, or NULL if another
// session has the key.
func (s *engine) onTried(l *lease, ttl time.Duration, floor int64, value []byte, err error) {
	s.mu.Lock()
	switch {
	case l.state == leaseGone: // with its session
	case err != nil && l.shared:
		// An unlocking might take the lock of another lease. Only a full lock table is certain to
		// have locked nothing.
		if pgclient.SQLState(err) != lockTableFull {
			l.session.closeNow()
		}
		l.err = err
		s.removeLease(l)
	case err != nil:
		// The key may have been locked before something failed.
		l.err = err
		s.unlockLease(l)
		return
	case len(value) != 8:
		l.token = tokenRefused
		s.removeLease(l)
	default:
		l.token = int64(binary.BigEndian.Uint64(value))
		if l.token == tokenBehindShared {
			s.removeLease(l)
			break
		}
		if least := max(floor, 1); s.options.TokenSequence != "" && l.token < least {
			s.mu.Unlock()
			s.raiseToken(l, ttl, least)
			return
		}
		s.markHeld(l, ttl)
	}
	s.mu.Unlock()
}

// markHeld makes a lease held. The caller holds s.mu.
func (s *engine) markHeld(l *lease, ttl time.Duration) {
	l.state = leaseHeld
	l.since = time.Now()
	s.extendLease(l, ttl)
	close(l.done)
}

// Release implements [olddriver.Store].
func (s *engine) Release(ctx context.Context, req olddriver.ReleaseRequest) (bool, error) {
	if err := s.checkUsable(ctx); err != nil {
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
		s.stopWaiting(ctx, key, req.Name, req.Owner)
		s.mu.Lock()
		l := s.findLease(key, req.Name, req.Owner)
		if l == nil {
			s.mu.Unlock()
			return false, nil
		}
		if l.state == leaseHeld {
			inTime := time.Now().Before(l.until)
			if err := waitUntilDone(ctx, s.unlockLease(l)); err != nil {
				return false, err
			}
			return inTime && l.unlockConfirmed, s.wrapErr(l.err)
		}
		done := l.done
		s.mu.Unlock()
		if err := waitUntilDone(ctx, done); err != nil {
			return false, err
		}
	}
}

// List implements [olddriver.Store]. It yields ErrUnsupported: see [Store.Locks].
func (s *engine) List(ctx context.Context, _ string) iter.Seq2[olddriver.Record, error] {
	return func(yield func(olddriver.Record, error) bool) {
		yield(olddriver.Record{}, s.unsupportedErr(ctx, "an advisory lock has no name: Store.Locks shows keys and processes"))
	}
}

// Break implements [olddriver.Store]. It returns ErrUnsupported: a session can only be ended with all
// its locks, by pg_terminate_backend.
func (s *engine) Break(ctx context.Context, _ olddriver.BreakRequest) (olddriver.Record, bool, error) {
	return olddriver.Record{}, false, s.unsupportedErr(ctx,
		"only a whole session can be ended, by pg_terminate_backend with a PID of Store.Locks")
}

func (s *engine) unsupportedErr(ctx context.Context, why string) error {
	if err := s.checkUsable(ctx); err != nil {
		return err
	}
	return fmt.Errorf("%w: %s", driver.ErrUnsupported, why)
}
