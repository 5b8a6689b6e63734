package quorumstore

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// errNoOutcome is the error of nodes that have answered, and not about an entry.
var errNoOutcome = errors.New("the node gave no outcome")

// A renewal is one entry of a batch.
type renewal struct {
	index int          // of the request
	known *entry       // nil if it is not one of this Store
	token int64        // that a majority has granted, 0 if that is not known
	entry driver.Entry // once it is decided
	held  bool         // some node has it
}

// Renew implements [driver.Store]: one request to each node for the whole batch. An entry is Held if a
// majority of the nodes says so under one and the same token, and Lost if so many do not that no
// majority can; the rest of it is then released. Else it is unknown, and the error is an [Error].
//
// A node outside the majority that has agreed on a token may have granted another one. Its part of
// the hold counts, too: each node is asked for the token that it has granted.
//
// A node that has lost a hold does not get it back: see the package comment.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	sent := time.Now()
	entries := make([]driver.Entry, len(reqs))
	renewals, batches := s.renewals(reqs, entries)
	undecided := len(renewals)
	if undecided == 0 {
		return entries, nil
	}
	b := ask(s, ctx, s.timeout, func(n *node) ([]driver.Entry, error) {
		return send(s, ctx, n, func(ctx context.Context) ([]driver.Entry, error) { return n.Renew(ctx, batches[n.index]) })
	}, func(b *ballot[[]driver.Entry], _ int) time.Duration {
		for i := range renewals {
			if r := &renewals[i]; r.entry.State == driver.Unknown {
				if r.decide(b, i); r.entry.State != driver.Unknown {
					undecided--
				}
			}
		}
		if undecided == 0 {
			return noLonger
		}
		return asBefore
	})
	for i := range renewals {
		r := &renewals[i]
		entries[r.index] = r.entry
		if r.entry.State == driver.Lost {
			s.releaseRest(ctx, &reqs[r.index], r)
		} else if r.known != nil {
			s.mu.Lock()
			if end := sent.Add(reqs[r.index].TTL + s.guarantees.Grain); end.After(r.known.expiry) {
				r.known.expiry = end
			}
			if r.known.token == 0 {
				r.known.token = r.entry.Token
			}
			s.mu.Unlock()
		}
	}
	if undecided == 0 {
		return entries, nil
	}
	for i, err := range b.errs {
		if err == nil && len(b.values[i]) < len(renewals) {
			b.errs[i] = errNoOutcome
		}
	}
	return entries, b.err("no majority confirmed an entry", func([]driver.Entry) string { return "answered" })
}

// renewals returns the entries to be decided, and the requests for each node. Those that are lost
// already it puts into entries.
func (s *Store) renewals(
	reqs []driver.RenewRequest, entries []driver.Entry,
) (renewals []renewal, batches [][]driver.RenewRequest) {
	batches = make([][]driver.RenewRequest, len(s.nodes))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, req := range reqs {
		r := renewal{index: i, token: req.Token, known: s.entries[[2]string{req.Name, req.Owner}]}
		if e := r.known; e != nil {
			if e.ended || req.Token != 0 && e.token != 0 && req.Token != e.token {
				entries[i].State = driver.Lost
				continue
			}
			r.token = e.token
		}
		renewals = append(renewals, r)
		for n := range s.nodes {
			if r.known != nil {
				req.Token = r.known.parts[n].token
			}
			batches[n] = append(batches[n], req)
		}
	}
	return renewals, batches
}

// decide counts the votes on the entry with an index in the batch. A Held under whatever token counts
// for the one that a majority has granted.
func (r *renewal) decide(b *ballot[[]driver.Entry], index int) {
	open, most := 0, 0
	var entry driver.Entry
	tokens := map[int64]int{}
	for node, answers := range b.values {
		if b.errs[node] == errNoReply || index >= len(answers) || answers[index].State == driver.Unknown {
			open++
			continue
		}
		if answer := answers[index]; answer.State == driver.Held {
			if r.held = true; r.token != 0 {
				answer.Token = r.token
			}
			if tokens[answer.Token]++; tokens[answer.Token] > most {
				most, entry = tokens[answer.Token], answer
			}
		}
	}
	switch {
	case most >= b.s.need:
		r.entry = entry
	case most+open < b.s.need:
		r.entry.State = driver.Lost
	}
}

// releaseRest releases what nodes may have of an entry that is lost. One that this Store does not
// know, and no node has under its token, may be another one.
func (s *Store) releaseRest(ctx context.Context, req *driver.RenewRequest, r *renewal) {
	e := r.known
	if e == nil && !r.held {
		return
	}
	if e == nil {
		s.mu.Lock()
		e = s.newEntry([2]string{req.Name, req.Owner}, unknownTime)
		s.mu.Unlock()
	}
	s.release(ctx, e, time.Time{}, nil) // It goes on in the background.
}
