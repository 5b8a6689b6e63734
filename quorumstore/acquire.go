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

// shortPause is how much longer than a majority a node may take to decide a vote, and the least upper
// bound of the pause after one without a winner.
const shortPause = 2 * time.Millisecond

// Acquire implements [driver.Store]: one vote. It returns as soon as the votes decide it. A grant that
// comes later makes the hold stronger, or is released again. Grants of an attempt that has failed are
// released before Acquire returns, as far as the nodes confirm it in time.
//
// A vote without a winner, since the nodes are divided among contenders, granted different tokens, or
// granted too late, is released, and the error is a [driver.RetryError] with a short random time: an
// attempt of a new owner may have a majority. If less than a majority replied, the error is an
// [Error]. It is returned at once if so many nodes refused the attempt that the others cannot make
// a majority, and after Options.Timeout if that depends on nodes that do not reply. If nodes that
// cannot serve now would make a majority, it is a RetryError around the Error, with the time after
// which they will.
//
// An attempt that nodes without a reply may decide yet is left as it is: Renew tells.
//
// Requests under way are awaited, to the deadline of ctx and for Options.Timeout at most.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	var none driver.Result
	if err := s.checkUsable(ctx); err != nil {
		return none, err
	}
	switch {
	case req.Limit > 1:
		return none, fmt.Errorf("%w by a quorum: N nodes with Limit L admit up to N*L/(N/2+1) holders, "+
			"3 for a Limit of 2 on 3 nodes", driver.ErrUnsupported)
	case req.Tokens > 1:
		return none, fmt.Errorf("%w by a quorum: %d tokens", driver.ErrUnsupported, req.Tokens)
	case req.Floor > 0 && req.Place > 0:
		return none, fmt.Errorf("%w: a floor with a place", driver.ErrInvalid)
	}
	e, err := s.beginAcquire(&req)
	if err != nil {
		return none, err
	}
	req.Place, req.Floor = 0, s.floorFor(req.Floor)
	began := time.Now()
	t := &tally{need: s.need, fenced: s.guarantees.Fencing, votes: make([]vote, len(s.nodes))}
	b, outcome, token := s.vote(ctx, e, req, t)
	took := time.Since(began)
	switch {
	case outcome == verdictWon && took < driver.Validity(req.TTL):
		s.mu.Lock()
		defer s.mu.Unlock()
		e.token = token
		return driver.Result{Granted: true, Token: token}, nil
	case outcome == verdictWon:
		outcome = verdictLate
	case outcome == verdictTokenMismatch:
		s.learnLead(t.greatestToken())
	case b.cut != nil, outcome == verdictUnavailable && t.mayWin():
		return none, b.err("no majority answered", describeResult)
	}
	s.undo(ctx, e, t)
	if rec, _ := t.blockingHold(); outcome == verdictBusy && s.isHold(ctx, &req, rec) {
		return driver.Result{Held: rec}, nil
	}
	return none, s.failure(b, t, outcome, took)
}

// vote sends an attempt to the nodes and counts the votes until they decide. Once a majority has
// replied and the vote is still undecided, the others have as long again. The same holds once too
// many have failed, since the votes of the others decide which error that is.
func (s *Store) vote(
	ctx context.Context, e *entry, req driver.Request, t *tally,
) (b *ballot[driver.Result], outcome verdict, token int64) {
	began, uncast, answered := time.Now(), len(t.votes), 0
	b = ask(s, ctx, s.timeout, func(n *node) (driver.Result, error) {
		return s.acquireAt(ctx, e, n, req)
	}, func(b *ballot[driver.Result], node int) time.Duration {
		res, err := b.values[node], b.errs[node]
		t.votes[node] = vote{cast: true, granted: res.Granted && err == nil, token: res.Token, held: res.Held, err: err}
		if uncast--; err == nil {
			answered++
		}
		switch outcome, token = t.verdictAfter(uncast); {
		case outcome != verdictUndecided && outcome != verdictUnavailable:
			return noLonger
		case answered >= s.need || outcome == verdictUnavailable:
			return max(shortPause, time.Since(began))
		}
		return asBefore
	})
	if b.cut == nil && outcome == verdictUndecided { // no more votes are waited for
		outcome, token = t.verdictAfter(0)
	}
	return b, outcome, token
}

// undo releases an attempt, and waits until each node that granted it has confirmed that, for
// Options.Timeout at most. The votes show which have.
func (s *Store) undo(ctx context.Context, e *entry, t *tally) {
	left := 0
	for _, v := range t.votes {
		if v.granted {
			left++
		}
	}
	count := func(b *ballot[bool], node int) time.Duration {
		if v := &t.votes[node]; v.granted {
			v.undone = b.errs[node] == nil
			left--
		}
		if left == 0 {
			return noLonger
		}
		return asBefore
	}
	if left == 0 {
		count = nil
	}
	s.release(ctx, e, time.Time{}, count)
}

// isHold reports whether what refuses an attempt is certainly one hold. Two owners with one public
// holder can be granted the same token on different nodes, for a moment, and then look like one
// hold. A hold with the public holder of this owner therefore counts only if a second look finds it.
func (s *Store) isHold(ctx context.Context, req *driver.Request, rec driver.Record) bool {
	if rec.Holder != req.Holder || len(s.nodes) == 1 {
		return true
	}
	again, err := s.Lookup(ctx, req.Name)
	return err == nil && len(again) > 0 && sameHold(rec, again[0])
}

// failure returns the error of an attempt that has been released. It matches driver.ErrNotApplied if
// the nodes that may have a part of it are no majority.
func (s *Store) failure(b *ballot[driver.Result], t *tally, outcome verdict, took time.Duration) error {
	reason := map[verdict]string{
		verdictBusy:          "no owner has a majority",
		verdictSplit:         "no owner has a majority",
		verdictLate:          "granted too late to be relied on",
		verdictTokenMismatch: "the tokens granted do not agree",
		verdictUnavailable:   "no majority answered",
	}[outcome]
	e := b.err(reason, describeResult)
	var later []time.Duration // until nodes can serve that cannot now
	answered, none := 0, 0
	for _, v := range t.votes {
		var retry *driver.RetryError
		if errors.As(v.err, &retry) {
			later = append(later, retry.After)
		}
		if v.cast && v.err == nil {
			answered++
		}
		if v.undone || v.cast && !v.granted && (v.err == nil || driver.IsNotApplied(v.err)) {
			none++
		}
	}
	slices.Sort(later)
	switch {
	case driver.Permanent(e), none <= len(t.votes)-s.need:
	case outcome != verdictUnavailable:
		return &driver.RetryError{Err: e, After: rand.N(4*max(shortPause, took)) + 1}
	case len(later) > 0 && answered+len(later) >= s.need:
		return &driver.RetryError{Err: e, After: later[s.need-answered-1]}
	case !driver.IsNotApplied(e):
		e.causes = append(e.causes, driver.ErrNotApplied)
	}
	return e
}

// describeResult puts the vote of a node into words.
func describeResult(res driver.Result) string {
	switch {
	case !res.Granted:
		return describeHold(res.Held)
	case res.Token > 0:
		return fmt.Sprintf("granted token %d", res.Token)
	}
	return "granted"
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
// that they agree on it in one round trip.
func (s *Store) floorFor(least int64) int64 {
	if !s.guarantees.Fencing || len(s.nodes) == 1 {
		return least
	}
	return min(max(least, time.Now().UnixMicro()+floorSlack+s.clockLead.Load()), driver.MaxToken)
}

// learnLead makes the next floors higher than the greatest token of a vote in which the nodes did not
// agree.
func (s *Store) learnLead(greatest int64) {
	lead := min(greatest-time.Now().UnixMicro(), maxClockLead)
	for old := s.clockLead.Load(); lead > old && !s.clockLead.CompareAndSwap(old, lead); {
		old = s.clockLead.Load()
	}
}
