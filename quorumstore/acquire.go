package quorumstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// shortPause is the least time that a vote waits for the other nodes after a majority has replied.
// The pause after a vote without a winner is random, below four times that or four times the time
// of the vote. It is below longPause: a single attempt of package holdfast waits as long.
const (
	shortPause = 2 * time.Millisecond
	longPause  = 250 * time.Millisecond
)

// Acquire implements [driver.Store]: one vote. It returns as soon as the votes decide it. A grant
// that comes later makes the hold stronger, or is released again. Grants of an attempt that has
// failed are released before Acquire returns, as far as the nodes confirm it in time. The package
// comment shows which error that is.
//
// An attempt that a majority may have granted, by nodes without a reply, is left as it is: Renew
// tells.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	var none driver.Result
	if err := s.checkUsable(ctx); err != nil {
		return none, err
	}
	switch {
	case req.Limit > 1 || req.Tokens > 1:
		return none, fmt.Errorf("%w by a quorum: a Limit or several Tokens", driver.ErrUnsupported)
	case req.Floor > 0 && req.Place > 0:
		return none, fmt.Errorf("%w: a floor with a place", driver.ErrInvalid)
	}
	waits := req.Place > 0
	e, err := s.beginAcquire(&req)
	if err != nil {
		return none, err
	}
	began := time.Now()
	b, t, outcome, token := s.vote(ctx, e, req)
	took := time.Since(began)
	votes := t.count()
	inTheWay := largestGroup(votes.inWay)
	switch {
	case outcome == verdictWon && took < driver.Validity(req.TTL) && s.isWon(e, token):
		return driver.Result{Granted: true, Token: token}, nil
	case outcome == verdictWon:
		outcome = verdictLate
	case outcome == verdictTokenMismatch:
		s.learnLead(slices.Max(votes.tokens))
	case outcome == verdictUnavailable && votes.without() <= s.minority():
		return none, b.err(string(outcome))
	}
	s.undo(ctx, e, t, len(votes.tokens))
	pause := rand.N(min(4*max(shortPause, took), longPause)) + 1
	if outcome == verdictBusy {
		if s.isHold(ctx, &req, inTheWay[0]) {
			return driver.Result{Held: inTheWay[0]}, nil
		}
		outcome = verdictSplit
	}
	if waits && outcome == verdictSplit && len(votes.inWay) > s.minority() {
		inTheWay[0].Remaining = pause
		return driver.Result{Held: inTheWay[0]}, nil
	}
	return none, s.failure(b, t, outcome, pause)
}

// beginAcquire records the entry of a new owner, and completes its request. The request goes to
// each node before any Release.
func (s *Store) beginAcquire(req *driver.Request) (*entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := [2]string{req.Name, req.Owner}
	if e := s.entries[key]; e != nil && e.state == live && time.Now().Before(e.expiry) {
		return nil, errOwner
	}
	req.Place, req.Floor = 0, s.floorFor(req.Floor)
	e := s.newEntry(key, req.TTL)
	e.own = true
	for i := range e.parts {
		e.parts[i].acquiring.Add(1)
	}
	s.begin(e)
	return e, nil
}

// acquireAt sends the Acquire of an entry to a node.
func (s *Store) acquireAt(ctx context.Context, e *entry, n *node, req driver.Request) (res driver.Result, err error) {
	defer s.done(e, n)
	if n.silent.Load() && n.pending.Load() > pendingLimit {
		err = errSilent
	} else {
		began := time.Now()
		res, err = n.Acquire(ctx, req)
		s.noteReply(ctx, n, began, err)
	}
	p := &e.parts[n.index]
	p.none = err == nil && !res.Granted || driver.IsNotApplied(err)
	p.unknown = err != nil && !p.none
	p.acquiring.Done()
	return res, err
}

// isWon records the token of an entry that a majority has granted. It reports false if a renewal
// has found the entry lost before, so that its release has begun.
func (s *Store) isWon(e *entry, token int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.token = token
	return e.state == live
}

// vote sends an attempt to the nodes and counts the votes until they decide. Once a majority has
// replied and the vote is still undecided, the others have as long again. The same holds once too
// many have failed, since the votes of the others decide which error that is.
func (s *Store) vote(
	ctx context.Context, e *entry, req driver.Request,
) (b *ballot[driver.Result], t *tally, outcome verdict, token int64) {
	began, waiting := time.Now(), len(s.nodes)
	b = ask(s, ctx, func(ctx context.Context, n *node) (driver.Result, error) { return s.acquireAt(ctx, e, n, req) })
	t = &tally{s.need, b.values, b.errs}
	for range b.count(ctx, s.timeout) {
		waiting--
		outcome, token = t.verdictAfter(waiting)
		if outcome != verdictUndecided && outcome != verdictUnavailable {
			break
		}
		if c := t.count(); c.replied() >= s.need || outcome == verdictUnavailable {
			b.within(max(shortPause, time.Since(began)))
		}
	}
	if outcome == verdictUndecided { // No more votes are waited for.
		outcome, token = t.verdictAfter(0)
	}
	return b, t, outcome, token
}

// undo releases an attempt, and waits until each of the nodes that granted it has confirmed that,
// for Options.Timeout at most. The votes show which have.
func (s *Store) undo(ctx context.Context, e *entry, t *tally, granted int) {
	s.mu.Lock()
	b, _ := s.release(ctx, driver.ReleaseRequest{Name: e.key[0], Owner: e.key[1]}, lost)
	s.mu.Unlock()
	if granted == 0 {
		return
	}
	for i := range b.count(ctx, s.timeout) {
		if t.errs[i] != nil || !t.results[i].Granted {
			continue
		}
		if b.errs[i] == nil {
			t.errs[i] = errUndone
		}
		if granted--; granted == 0 {
			return
		}
	}
}

// isHold reports whether what refuses an attempt is certainly one hold. Two owners with one public
// holder can be granted the same token on different nodes, for a moment, and then look like one
// hold. A hold with the public holder of this owner therefore counts only if a second look finds
// it.
func (s *Store) isHold(ctx context.Context, req *driver.Request, rec driver.Record) bool {
	if rec.Holder != req.Holder {
		return true
	}
	again, err := s.Lookup(ctx, req.Name)
	return err == nil && len(again) > 0 && sameHold(rec, again[0])
}

// failure returns the error of an attempt that has been released. It matches driver.ErrNotApplied
// if the nodes that may have a part of it are no majority, unless it depends on nodes that hang.
func (s *Store) failure(b *ballot[driver.Result], t *tally, outcome verdict, pause time.Duration) error {
	e := b.err(string(outcome))
	votes := t.count()
	var later []time.Duration // until nodes can serve that cannot now
	for _, err := range t.errs {
		var retry *driver.RetryError
		if errors.As(err, &retry) {
			later = append(later, retry.After)
		}
	}
	slices.Sort(later)
	missing := s.need - votes.replied()
	switch {
	case driver.Permanent(e), votes.without() <= s.minority():
	case outcome != verdictUnavailable:
		return &driver.RetryError{Err: e, After: pause}
	case missing <= len(later):
		return &driver.RetryError{Err: e, After: later[missing-1]}
	case votes.refused > s.minority():
		e.causes = append(e.causes, driver.ErrNotApplied)
	}
	return e
}

const (
	// floorSlack is how far above the client's clock the floor of a token is, in µs: nodes with
	// clocks that are at most that far ahead all grant the floor.
	floorSlack = int64(time.Second / time.Microsecond)

	// maxClockLead bounds the recorded lead of clocks that are further ahead, so that clients that
	// learn from each other cannot drive tokens away from the time.
	maxClockLead = int64(time.Hour / time.Microsecond)
)

// floorFor returns the token to propose: above all that the nodes would choose by themselves, so
// that they agree on it in one round trip. The caller holds s.mu.
func (s *Store) floorFor(least int64) int64 {
	if !s.guarantees.Fencing {
		return least
	}
	return min(max(least, time.Now().UnixMicro()+floorSlack+s.clockLead), driver.MaxToken)
}

// learnLead makes the next floors higher than the greatest token of a vote in which the nodes did
// not agree.
func (s *Store) learnLead(greatest int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clockLead = max(s.clockLead, min(greatest-time.Now().UnixMicro(), maxClockLead))
}
