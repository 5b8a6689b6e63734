package quorumstore

import (
	"cmp"
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// A renewal is one request of a batch to the nodes.
type renewal struct {
	*entry
	index  int          // of the request of the caller
	answer driver.Entry // once it is decided
	held   bool         // some node has it
	open   int          // how many nodes have not replied about it
}

// Renew implements [driver.Store]: one request to each node for the whole batch. An entry is Held
// if a majority of the nodes says so under one and the same token, and Lost if so many do not that
// no majority can; the rest of it, as far as this Store knows of any, is then released. Else it is
// unknown, and the error has the replies. An entry whose Acquire had no answer is also Lost if a
// majority has replied without deciding it: the nodes that hang may leave that open for long.
//
// A node outside the majority may have granted another token. Its part does not count, as it does
// not for Lookup, and is not renewed.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	entries := make([]driver.Entry, len(reqs))
	var renewals []renewal
	var batch []driver.RenewRequest
	s.mu.Lock()
	for i, req := range reqs {
		e := s.entryOf([2]string{req.Name, req.Owner}, req.TTL)
		if e.state != live || req.Token != 0 && e.token != 0 && req.Token != e.token {
			entries[i].State = driver.Lost
			continue
		}
		req.Token = cmp.Or(req.Token, e.token)
		renewals, batch = append(renewals, renewal{entry: e, index: i, open: len(s.nodes)}), append(batch, req)
	}
	s.mu.Unlock()
	if len(batch) == 0 {
		return entries, nil
	}
	b := ask(s, ctx, func(ctx context.Context, n *node) ([]driver.Entry, error) { return n.Renew(ctx, batch) })
	for range b.await(ctx, s.timeout) {
		undecided := false
		for i := range renewals {
			renewals[i].decide(b, i)
			undecided = undecided || renewals[i].answer.State == driver.Unknown
		}
		if !undecided {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for i := range renewals {
		r := &renewals[i]
		unsettled := r.answer.State == driver.Unknown && r.own && batch[i].Token == 0 && r.open <= s.minority()
		switch {
		case r.state != live: // Its release has begun meanwhile.
			r.answer = driver.Entry{State: driver.Lost}
		case r.answer.State == driver.Lost && !r.own && !r.held:
			if s.entries[r.key] == r.entry { // The owner may have an entry under another token.
				delete(s.entries, r.key)
			}
		case r.answer.State == driver.Lost || unsettled: // Its rest is released in the background.
			r.answer = driver.Entry{State: driver.Lost}
			s.release(ctx, r.entry, 0, lost)
		default:
			if end := s.endAfter(batch[i].TTL); end.After(r.expiry) {
				r.expiry = end
			}
			r.token = cmp.Or(r.token, r.answer.Token)
		}
		if entries[r.index] = r.answer; r.answer.State == driver.Unknown && err == nil {
			err = b.err("no majority confirmed an entry")
		}
	}
	return entries, err
}

// decide counts the votes on the request with an index in the batch.
func (r *renewal) decide(b *ballot[[]driver.Entry], index int) {
	tokens := make([]int64, 0, 16)
	r.open = 0
	for _, answers := range b.values {
		switch {
		case index >= len(answers) || answers[index].State == driver.Unknown: // perhaps no reply yet
			r.open++
		case answers[index].State == driver.Held:
			tokens = append(tokens, answers[index].Token)
		}
	}
	r.held = len(tokens) > 0
	switch token, most := mostCommon(tokens); {
	case most >= b.s.need:
		r.answer = driver.Entry{State: driver.Held, Token: token}
	case most+r.open < b.s.need:
		r.answer.State = driver.Lost
	}
}
