package drivertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func (s *refStore) Acquire(ctx context.Context, req driver.AcquireRequest) (res driver.AcquireResult, err error) {
	if ctx.Err() != nil && s.model.has("ended calls apply") {
		_, _ = s.Acquire(context.WithoutCancel(ctx), req)
		return res, driver.ErrNotApplied
	}
	if s.silent && s.model.has("remembers held") && s.seen == req.Name {
		return res, nil
	}
	if left := time.Until(s.busy); left > 0 && ctx.Err() == nil {
		return res, s.postpone(req, left)
	}
	if err := s.begin(ctx); err != nil {
		if errors.Is(err, errLink) && s.model.has("lost means answered") {
			return res, nil
		}
		return res, s.leaky(err, req.Owner)
	}
	defer func() {
		if lost := s.end(); lost != nil {
			res, err = driver.AcquireResult{}, lost
		}
	}()
	m := s.model
	if req.Detached && (!m.claims.Detached && !m.has("underclaims detached") || m.has("overclaims detached")) {
		if m.has("refused detached takes") {
			s.grant(req)
		}
		return res, driver.ErrUnsupported
	}
	if m.has("changes metadata") && req.Metadata != nil {
		req.Metadata["store"] = "was here"
	}
	switch {
	case req.Limit != 0 && !m.has("ignores limits"), req.Claim && !m.claims.Fair && !m.has("claim unclaimed"):
		return res, driver.ErrUnsupported
	case !m.has("newcomers overtake") || req.Claim:
		s.settle(req.Name)
	}
	s.register(req)
	e := s.at(req.Name)
	switch {
	case req.Claim && e == nil && !m.has("claim takes free"):
		return s.joinQueue(req, driver.AcquireResult{})
	case req.Claim && e != nil && e.record.Kept && m.owns(e, req.Owner) && m.has("claim revives kept"):
		e.record.Kept = false
		return s.repeat(e, req), nil
	case s.tooFar(req, e):
		if m.has("refused floor takes") {
			s.grant(req)
		}
		if m.has("refused floor raises token") {
			m.last[m.key(req.Name)] = max(m.last[m.key(req.Name)], req.Floor)
		}
		return res, driver.ErrInvalid
	case e == nil && m.has("grants nothing"):
		return res, nil
	case e == nil:
		if m.has("checks then sets") {
			m.mu.Unlock()
			time.Sleep(time.Microsecond)
			m.mu.Lock()
		}
		e := s.grant(req)
		if req.Queue > 0 && m.has("grant lasts queue") {
			e.until = s.expiry(req.Queue)
		}
		return driver.AcquireResult{Granted: true, Token: e.record.Token, Tokens: e.tokens}, nil
	case s.repeats(e, req.Owner):
		return s.repeat(e, req), nil
	}
	s.disturb(e, req)
	s.seen = req.Name
	res, err = s.refuse(e)
	if err != nil {
		return res, err
	}
	return s.joinQueue(req, res)
}

// postpone is the answer to a request that cannot be served now.
func (s *refStore) postpone(req driver.AcquireRequest, left time.Duration) error {
	m := s.model
	switch {
	case m.has("busy is no retry"):
		return errors.New("loading")
	case m.has("busy is held"):
		return nil
	case m.has("busy forgets when"):
		left = 0
	case m.has("busy applies"):
		m.mu.Lock()
		defer m.mu.Unlock()
		s.grant(req)
	}
	return &driver.RetryError{Err: errors.New("loading"), After: left}
}

// tooFar reports whether the floor of a request is too far above the clock.
func (s *refStore) tooFar(req driver.AcquireRequest, e *entry) bool {
	m := s.model
	lead := driver.MaxLead
	if m.has("refuses every floor") {
		lead = 0
	}
	return (e == nil || m.has("refuses floor of repetition") && m.owns(e, req.Owner)) && !m.has("takes any floor") &&
		m.claims.Fencing && req.Floor > s.now().Add(lead).UnixMicro()
}

// repeats reports whether an Acquire by owner is a repetition.
func (s *refStore) repeats(e *entry, owner string) bool {
	m := s.model
	if e.record.Kept && !m.has("keep lets owner take") || m.has("forgets repetitions") {
		return false
	}
	return m.owns(e, owner)
}

func (s *refStore) grant(req driver.AcquireRequest) *entry {
	m := s.model
	key := m.key(req.Name)
	e := &entry{owner: req.Owner, until: s.expiry(req.TTL), takenBy: s, detached: req.Detached}
	e.first = e.until
	if req.Detached && m.has("detached never expires") {
		e.until = e.until.Add(long)
	}
	e.record = driver.Record{Name: req.Name, Holder: req.Holder, Since: s.now(), Token: s.token(key, req.Floor)}
	e.tokens = s.reserveTokens(key, req)
	if m.claims.Metadata && !m.has("drops metadata") || m.has("keeps metadata unclaimed") {
		e.record.Metadata = req.Metadata
	}
	if old := m.left[key]; old != nil {
		if m.has("inherits metadata") && req.Metadata == nil {
			e.record.Metadata = old.record.Metadata
		}
		if m.has("inherits expiry") && old.until.After(e.until) {
			e.until = old.until
		}
	}
	m.entries[key] = e
	return e
}

func (s *refStore) repeat(e *entry, req driver.AcquireRequest) driver.AcquireResult {
	m := s.model
	until := s.expiry(req.TTL)
	switch {
	case m.has("repetition does not prolong"):
	case until.After(e.until), m.has("repetition shortens"):
		e.until = until
	}
	if m.has("repetition changes token") {
		e.record.Token = s.token(m.key(req.Name), 0)
	}
	if m.has("repetition takes floor") {
		e.record.Token = max(e.record.Token, req.Floor)
	}
	if m.has("tokens of repetition") {
		e.tokens = req.Tokens
	}
	return driver.AcquireResult{Granted: true, Token: e.record.Token, Tokens: e.tokens}
}

// reserveTokens returns how many tokens a grant has whose first token is the last of its name, and
// makes the last of them the last of the name.
func (s *refStore) reserveTokens(key string, req driver.AcquireRequest) int {
	m := s.model
	first, requested := m.last[key], req.Tokens
	switch last := first + int64(requested) - 1; {
	case m.has("tokens too many"):
		requested = driver.MaxTokens
	case m.has("tokens run ahead") && requested > 1:
	case requested < 2 || !m.claims.Fencing || last > max(s.now().UnixMicro(), req.Floor)+driver.MaxTokensLead.Microseconds():
		return 0
	}
	if !m.has("tokens not reserved") {
		m.last[key] = first + int64(requested) - 1
	}
	return requested
}

// token makes the token of a grant.
func (s *refStore) token(key string, floor int64) int64 {
	m := s.model
	if !m.claims.Fencing && !m.has("tokens unclaimed") || m.has("overclaims fencing") {
		return 0
	}
	if m.has("ignores floor") {
		floor = 0
	}
	token := max(m.last[key]+1, s.now().UnixMicro(), floor)
	switch {
	case m.has("forgets floor"):
		token = max(m.last[key]+1, s.now().UnixMicro())
		m.last[key] = token
		return max(token, floor)
	case m.has("tokens fall at expiry") && m.entries[key] != nil, m.has("tokens fall at release") && m.entries[key] == nil && m.last[key] > 0,
		m.has("tokens fall at restart") && m.last[key] == 0:
		token = max(floor, m.last[key]-1, 1)
	case m.has("tokens too large"):
		token += driver.MaxToken
	case m.has("tokens per store"):
		s.grants++
		token = max(s.grants, floor)
	}
	m.last[key] = token
	return token
}

// disturb is what a refused attempt must not do.
func (s *refStore) disturb(e *entry, req driver.AcquireRequest) {
	m := s.model
	switch {
	case m.has("refusal prolongs"):
		e.until = e.until.Add(req.TTL)
	case m.has("refusal raises token"):
		m.last[m.key(req.Name)] = max(m.last[m.key(req.Name)], req.Floor)
	case m.has("refusal takes over"):
		e.owner = req.Owner
	}
}

func (s *refStore) refuse(e *entry) (driver.AcquireResult, error) {
	m := s.model
	rec := s.record(e)
	switch {
	case m.has("busy is an error"):
		return driver.AcquireResult{}, errors.New("the name is held")
	case m.has("refusal leaks owner"):
		rec.Holder += e.owner
	case m.has("refusal says nothing"):
		rec = driver.Record{}
	case m.has("refusal names others"):
		rec.Holder = "somebody"
	}
	return driver.AcquireResult{Held: rec}, nil
}

// leaky shows the owner in an error, if that is the bug.
func (s *refStore) leaky(err error, owner string) error {
	if s.model.has("errors leak owner") {
		return fmt.Errorf("for %s: %w", owner, err)
	}
	return err
}
