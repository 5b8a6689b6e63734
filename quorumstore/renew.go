package quorumstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

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
	var batch []driver.RenewRequest
	var places []int // of the requests of the batch among reqs
	s.mu.Lock()
	for i, req := range reqs {
		if e := s.entries[[2]string{req.Name, req.Owner}]; e != nil {
			if e.state != live || req.Token != 0 && e.token != 0 && req.Token != e.token {
				entries[i].State = driver.Lost
				continue
			}
			req.Token = cmp.Or(req.Token, e.token)
		}
		batch, places = append(batch, req), append(places, i)
	}
	s.mu.Unlock()
	if len(batch) == 0 {
		return entries, nil
	}
	b := ask(s, ctx, s.timeout, func(ctx context.Context, n *node) ([]driver.Entry, error) {
		return n.Renew(ctx, batch)
	}, func(b *ballot[[]driver.Entry], _ int) bool {
		for i, place := range places {
			if entries[place].State == driver.Unknown {
				entries[place], _, _ = judge(b, i)
			}
		}
		return !slices.ContainsFunc(entries, func(e driver.Entry) bool { return e.State == driver.Unknown })
	})
	var err error
	var ended [][2]string // those whose rest is released in the background
	s.mu.Lock()
	for i, place := range places {
		answer, has, open := judge(b, i)
		key := [2]string{batch[i].Name, batch[i].Owner}
		e := s.entries[key]
		unsettled := answer.State == driver.Unknown && e != nil && batch[i].Token == 0 && open <= s.minority()
		switch {
		case e != nil && e.state != live: // Its release has begun meanwhile.
			answer = driver.Entry{State: driver.Lost}
		case answer.State == driver.Lost || unsettled:
			answer = driver.Entry{State: driver.Lost}
			if e != nil || has > 0 { // Otherwise the owner may have an entry under another token.
				ended = append(ended, key)
			}
		case e == nil && answer.State == driver.Held: // Another Store has acquired it.
			s.newEntry(key, batch[i].TTL).token = answer.Token
		case e != nil:
			if end := s.endAfter(batch[i].TTL); end.After(e.expiry) {
				e.expiry = end
			}
			e.token = cmp.Or(e.token, answer.Token)
		}
		if entries[place] = answer; answer.State == driver.Unknown && err == nil {
			err = b.err("no majority confirmed an entry")
		}
	}
	s.mu.Unlock()
	for _, key := range ended {
		s.release(ctx, 0, key, 0, lost, func(*ballot[bool], int) bool { return true })
	}
	return entries, err
}

// judge returns what the answers of the nodes make of an entry of the batch, how many nodes say
// that it is Held under the most common token, and how many have not replied about it.
func judge(b *ballot[[]driver.Entry], index int) (answer driver.Entry, has, open int) {
	tokens := make([]int64, 0, 16)
	for _, answers := range b.values {
		switch {
		case index >= len(answers) || answers[index].State == driver.Unknown: // perhaps no reply yet
			open++
		case answers[index].State == driver.Held:
			tokens = append(tokens, answers[index].Token)
		}
	}
	token, has := mostCommon(tokens)
	switch {
	case has >= b.s.need:
		answer = driver.Entry{State: driver.Held, Token: token}
	case has+open < b.s.need:
		answer.State = driver.Lost
	}
	return answer, has, open
}
