package quorumstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// A round is one vote on an acquisition.
type round struct {
	tally
	s        *engine
	req      olddriver.AcquireRequest
	began    time.Time
	requests []nodeRequest // the acquisition at each node
}

func (s *engine) newRound(req olddriver.AcquireRequest) *round {
	return &round{
		tally: tally{need: s.need, fenced: s.guarantees.Fencing, votes: make([]vote, len(s.nodes))},
		s:     s,
		req:   req,
		began: time.Now(),
	}
}

// collectVotes counts the votes until they decide. Once a majority has replied and the vote is
// still undecided, the others have a period of grace. The same holds once too many have failed,
// since the votes of the others decide which error that is. The error is the end of the caller or
// of the Store.
func (r *round) collectVotes(ctx context.Context, grace time.Duration) (outcome verdict, token int64, err error) {
	uncast, answered := len(r.votes), 0
	f := newFanOut[reply](ctx, r.s, r.s.timeout)
	f.count = func(node int, res reply, err error) bool {
		r.votes[node] = vote{
			cast: true, granted: res.Granted && err == nil, token: res.Token, held: res.Held, err: err,
		}
		uncast--
		if err == nil {
			answered++
		}
		outcome, token = r.verdictAfter(uncast)
		if outcome != verdictUndecided && outcome != verdictUnavailable {
			return true
		}
		if answered >= r.need || outcome == verdictUnavailable {
			f.graceAfter(max(grace, time.Since(r.began)))
		}
		return false
	}
	r.requests = r.s.enqueueAll(r.req.Name, r.req.Owner, nodeRequest{acquire: &r.req}, f)
	err = f.wait(ctx)
	if err == nil && outcome == verdictUndecided { // no more votes are waited for
		outcome, token = r.verdictAfter(0)
	}
	if outcome == verdictWon && time.Since(r.began) >= driver.Validity(r.req.TTL) {
		outcome = verdictLate
	}
	return outcome, token, err
}

// undo queues a release at every node that granted, or whose outcome is unknown, and cancels the
// acquisitions that wait. The function that it returns waits for the nodes that granted, for
// Options.Timeout at most, or until ctx or the Store ends. It reports whether all of them confirmed
// the release.
func (r *round) undo(ctx context.Context) (wait func() bool) {
	s := r.s
	granted, replied, confirmed := 0, 0, 0
	f := newFanOut[reply](ctx, s, s.timeout)
	f.count = func(node int, _ reply, err error) bool {
		if r.votes[node].granted {
			replied++
			if err == nil {
				confirmed++
			}
		}
		return replied == granted
	}
	f.mu.Lock() // no reply is counted before all are sent
	defer f.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	f.missing = 0
	for i, n := range s.nodes {
		v, acquisition := r.votes[i], &r.requests[i]
		switch {
		case v.granted:
			granted++
		case v.cast && (v.err == nil || driver.IsNotApplied(v.err)), !v.cast && s.cancel(n, acquisition):
			continue // Nothing is left there.
		}
		f.missing++
		s.enqueue(n, &nodeRequest{
			release: olddriver.ReleaseRequest{Name: r.req.Name, Owner: r.req.Owner},
			owner:   acquisition.owner,
			callers: []*fanOut[reply]{f},
			undoes:  acquisition,
		})
	}
	if granted == 0 {
		f.stopCounting()
	}
	if f.missing == 0 {
		f.cancel()
	}
	return func() bool {
		_ = f.wait(ctx) // whatever ended it, confirmed counts
		return confirmed == granted
	}
}

// acquireError makes the error of an acquisition.
func (r *round) acquireError(reason string, cause error) *Error {
	return r.s.quorumError(reason, cause, func(n *node) Vote {
		if v := r.votes[n.index]; v.cast {
			return v.publicVote()
		}
		return Vote{Err: errNoReply}
	})
}

// unreachableError makes the error of an acquisition with too few replies. It matches
// driver.ErrNotApplied if so many nodes refused it that the others are no majority: later grants of
// these are released again. It is a driver.RetryError if nodes that cannot serve now would make a
// majority with those that can, and no majority has been left with a grant; undone reports that all
// grants have been released.
func (r *round) unreachableError(undone bool) error {
	e := r.acquireError("no majority answered", nil)
	answered, refused, none := 0, 0, 0
	var later []time.Duration
	for _, v := range r.votes {
		var retry *driver.RetryError
		switch {
		case !v.cast:
		case v.err == nil:
			answered++
			if !v.granted || undone {
				none++
			}
		case errors.As(v.err, &retry):
			later = append(later, retry.After)
			refused++
		case driver.IsNotApplied(v.err) && !isUnsent(v.err):
			refused++
		}
	}
	minority := len(r.votes) - r.need
	switch {
	case driver.Permanent(e):
	case len(later) > 0 && answered+len(later) >= r.need && none+refused > minority:
		return &driver.RetryError{Err: e, After: earliestRetry(later, r.need-answered)}
	case refused > minority && !driver.IsNotApplied(e):
		e.causes = append(e.causes, driver.ErrNotApplied)
	}
	return e
}

// earliestRetry returns when n of some nodes can serve, given when each can, and 0 if that is not
// known.
func earliestRetry(later []time.Duration, n int) time.Duration {
	known := slices.DeleteFunc(slices.Sorted(slices.Values(later)), func(d time.Duration) bool { return d == 0 })
	if n > len(known) {
		return 0
	}
	return known[n-1]
}
