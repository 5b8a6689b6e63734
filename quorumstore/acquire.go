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

const (
	// shortPause is the least time that a vote waits for the other nodes after a majority. The
	// pause after a vote without a winner is random, below four times that or the time of the vote,
	// and below longPause: a single attempt of package holdfast waits as long.
	shortPause = 2 * time.Millisecond
	longPause  = 250 * time.Millisecond

	// floorSlack is how far above the client's clock the floor of a token is, in µs: nodes with
	// clocks that are at most that far ahead all grant it. maxClockLead bounds the lead of others,
	// so that clients that learn from each other cannot drive tokens away from the time.
	floorSlack   = int64(time.Second / time.Microsecond)
	maxClockLead = int64(time.Hour / time.Microsecond)
)

// Acquire implements [driver.Store]: one vote. It returns as soon as the replies decide it. Once a
// majority has replied and they do not, or too many have failed, the other nodes have as long
// again: they may decide it, or which error it is. What a failed attempt was granted is released
// before Acquire returns, as far as the nodes confirm that in time. An attempt that a majority may
// have granted, by nodes without a reply, is left as it is: Renew tells.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	var none driver.Result
	if err := s.checkUsable(ctx); err != nil {
		return none, err
	}
	switch {
	case req.Limit > 1 || req.Tokens > 1:
		return none, fmt.Errorf("%w, a quorum: a Limit or several Tokens", driver.ErrUnsupported)
	case req.Floor > 0 && req.Place > 0:
		return none, fmt.Errorf("%w: a floor with a place", driver.ErrInvalid)
	}
	waits, began, key := req.Place > 0, time.Now(), [2]string{req.Name, req.Owner}
	s.mu.Lock()
	if e := s.entries[key]; e != nil && e.state == live && began.Before(e.expiry) {
		s.mu.Unlock()
		return none, errors.New("the owner has an entry already") // It may be the one that is requested.
	}
	if req.Place = 0; s.guarantees.Fencing { // Nodes that would choose a lower token agree on the floor.
		req.Floor = min(max(req.Floor, began.UnixMicro()+floorSlack+s.clockLead), driver.MaxToken)
	}
	e := s.newEntry(key, req.TTL)
	for i := range e.parts {
		e.parts[i].acquiring.Add(1) // Its release follows.
	}
	e.pending = len(s.nodes)
	s.mu.Unlock()

	votes, outcome, token := votes{need: s.need}, verdictUndecided, int64(0)
	b := ask(s, ctx, s.timeout, func(ctx context.Context, n *node) (driver.Result, error) {
		return s.acquireAt(ctx, e, n, req)
	}, func(b *ballot[driver.Result], node int) bool {
		votes.add(b.values[node], b.errs[node])
		outcome, token = votes.verdict(b.open)
		if outcome != verdictUndecided && outcome != verdictUnavailable {
			return true
		}
		if votes.replied() >= s.need || outcome == verdictUnavailable {
			b.within(max(shortPause, time.Since(began)))
		}
		return false
	})
	if outcome == verdictUndecided { // No more votes are waited for.
		outcome, token = votes.verdict(0)
	}
	took := time.Since(began)
	switch outcome {
	case verdictWon:
		s.mu.Lock()
		e.token = token
		stands := e.state == live // A renewal may have found it lost before.
		s.mu.Unlock()
		if stands {
			return driver.Result{Granted: true, Token: token}, nil
		}
		outcome = verdictLost
	case verdictUnavailable:
		if votes.without() <= s.minority() {
			return none, b.err(string(outcome))
		}
	}
	granted := len(votes.tokens)
	s.release(ctx, s.timeout, key, 0, lost, func(undo *ballot[bool], node int) bool {
		if b.values[node].Granted {
			if granted--; undo.errs[node] == nil {
				votes.refused++ // It has nothing of the attempt any more.
			}
		}
		return granted == 0 // If none has granted it, one that refused it replies at once.
	})
	pause := rand.N(min(4*max(shortPause, took), longPause)) + 1
	inTheWay, _ := mostlyHeld(votes.inWay)
	if outcome == verdictBusy {
		if inTheWay.Holder != req.Holder {
			return driver.Result{Held: inTheWay}, nil
		}
		// Two owners with one public holder can be granted one token on different nodes, for a
		// moment, and look like one hold. It is one if a second look finds it.
		if again, err := s.Lookup(ctx, req.Name); err == nil && len(again) > 0 && sameHold(inTheWay, again[0]) {
			return driver.Result{Held: inTheWay}, nil
		}
		outcome = verdictSplit
	}
	if waits && outcome == verdictSplit && len(votes.inWay) > s.minority() {
		inTheWay.Remaining = pause
		return driver.Result{Held: inTheWay}, nil
	}
	return none, s.failure(b, votes, outcome, pause)
}

// acquireAt sends the Acquire of an entry to a node.
func (s *Store) acquireAt(ctx context.Context, e *entry, n *node, req driver.Request) (res driver.Result, err error) {
	defer s.done(e)
	if n.silent.Load() && n.pending.Load() > pendingLimit {
		err = errSilent
	} else {
		began := time.Now()
		res, err = n.Acquire(ctx, req)
		s.noteReply(ctx, n, began, err)
		s.mu.Lock()
		// The next floors are higher, by half more than needed: requests may take longer.
		more := max(res.Token-began.UnixMicro()-floorSlack-s.clockLead, 0)
		s.clockLead = min(s.clockLead+more+more/2, maxClockLead)
		s.mu.Unlock()
	}
	p := &e.parts[n.index]
	p.none = err == nil && !res.Granted || driver.IsNotApplied(err)
	p.late.Store(err != nil && !p.none)
	p.acquiring.Done()
	return res, err
}

// failure returns the error of an attempt that has been released. It matches driver.ErrNotApplied
// if the nodes that may have a part of it are no majority, unless it depends on nodes that hang.
func (s *Store) failure(b *ballot[driver.Result], votes votes, outcome verdict, pause time.Duration) error {
	e := b.err(string(outcome))
	var later []time.Duration // until nodes can serve that cannot now
	for _, err := range b.errs {
		if retry := (*driver.RetryError)(nil); errors.As(err, &retry) {
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
