package drivertest

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue"
)

// A refPlace is what the model keeps with a place.
type refPlace struct {
	by  *refStore
	req driver.AcquireRequest
}

type (
	refEntry = lockqueue.Entry[refPlace]
	refQueue = lockqueue.Queue[refPlace]
)

// An interest is an owner that is sent Ask.
type interest struct {
	by    *refStore
	name  string
	owner string
	until time.Time
}

// A listener is a function that was registered with a store.
type listener struct {
	by *refStore
	f  func(driver.Notice)
}

// underRule applies the rule of queues to a name: f gets its queue, with the hold as the first
// entry. The places that it admits become holds.
func (s *refStore) underRule(name string, f func(q *refQueue, now time.Duration, c *lockqueue.Counter)) {
	m := s.model
	key := m.key(name)
	var q refQueue
	e := s.at(name)
	if e != nil && e.record.Kept && m.has("keep admits") {
		e = nil
	}
	if e != nil {
		// The method at judges when a hold ends.
		q.Append(&refEntry{Owner: e.owner, Token: 1, Tokens: 1, Until: 1 << 62, Kept: e.record.Kept})
	}
	for _, place := range m.places[key] {
		q.Append(&place)
	}
	counter := lockqueue.Counter{Last: 1} // The model has tokens of its own.
	f(&q, s.now().Sub(m.epoch), &counter)
	m.places[key] = nil
	for place := range q.All() {
		if place.Token == 0 {
			m.places[key] = append(m.places[key], *place)
		}
	}
	if first := q.Oldest(); e == nil && first != nil {
		s.admit(*first)
	}
}

// settle admits the first place of a name that is free.
func (s *refStore) settle(name string) {
	if len(s.model.places[s.model.key(name)]) > 0 {
		s.underRule(name, func(q *refQueue, now time.Duration, c *lockqueue.Counter) { q.Settle(now, c) })
	}
}

// admit makes a hold of a place, and notifies its store.
func (s *refStore) admit(place refEntry) {
	m, req, by := s.model, place.Data.req, place.Data.by
	key := m.key(req.Name)
	if m.has("place forgets request") {
		req = driver.AcquireRequest{Name: req.Name, Owner: req.Owner, TTL: req.TTL, Tokens: req.Tokens}
	}
	e := by.grant(req)
	e.until, e.admitted = m.epoch.Add(place.Until), true
	if m.has("admission prolongs") {
		e.until = s.expiry(req.TTL)
	}
	n := driver.Notice{Kind: driver.Granted, Name: req.Name, Owner: req.Owner, Token: e.record.Token, Tokens: e.tokens}
	if m.has("notice of more tokens") {
		n.Tokens = driver.MaxTokens
	}
	m.notify(by, n)
	if m.has("notifies twice") {
		m.notify(by, n)
	}
	for i, other := range m.places[key] {
		switch {
		case m.has("admits two") && i == 0:
			n.Owner = other.Owner
			m.notify(other.Data.by, n)
		case m.has("asks all places"):
			m.notify(other.Data.by, driver.Notice{Kind: driver.Ask, Name: req.Name, Owner: other.Owner})
		}
	}
}

// joinQueue is what an Acquire with Queue does when the name is not granted, and a Claim that finds
// no hold.
func (s *refStore) joinQueue(req driver.AcquireRequest, res driver.AcquireResult) (driver.AcquireResult, error) {
	m := s.model
	key := m.key(req.Name)
	if m.has("attempt queues") {
		req.Queue = max(req.Queue, medium)
	}
	switch {
	case req.Queue == 0 && !req.Claim, m.has("cannot notify"), req.Claim && m.has("claim forgets places"):
		return res, nil
	case !m.claims.Fair:
		res.Queued = true
		return res, nil
	case m.claims.Fencing && req.Floor > s.now().Add(driver.MaxLead).UnixMicro() && !m.has("place takes any floor"):
		return driver.AcquireResult{}, driver.ErrInvalid
	case m.has("place made late") && !req.Claim:
		m.mu.Unlock()
		time.Sleep(time.Microsecond)
		m.mu.Lock()
		m.places[key] = append(m.places[key], refEntry{Owner: req.Owner, Until: s.now().Add(req.Queue).Sub(m.epoch), Data: refPlace{s, req}})
		res.Queued, res.First = true, len(m.places[key]) == 1
		return res, nil
	case m.has("repetition queues again") && !req.Claim:
		m.places[key] = slices.DeleteFunc(m.places[key], func(e refEntry) bool { return e.Owner == req.Owner })
	}
	s.underRule(req.Name, func(q *refQueue, now time.Duration, c *lockqueue.Counter) {
		place := refEntry{Owner: req.Owner, Data: refPlace{s, req}}
		queue := req.Queue
		if m.has("places never end") {
			queue += long
		}
		if req.Claim && m.has("claim does not prolong") {
			queue = 0
		}
		own, _, _ := q.Acquire(lockqueue.Request[refPlace]{
			Entry: place, TTL: req.TTL, Queue: queue, Claim: req.Claim && !m.has("claim makes place"),
		}, now, c)
		if own == nil {
			return
		}
		res.Queued, res.First = true, own == q.First() && !m.has("never first") || m.has("every place is first")
	})
	if places := m.places[key]; len(places) > 0 && res.Queued && m.has("serves latest") && !req.Claim {
		m.places[key] = slices.Insert(places[:len(places)-1], 0, places[len(places)-1])
	}
	return res, nil
}

// renewPlace renews the place of an owner.
func (s *refStore) renewPlace(req driver.RenewRequest) (outcome driver.RenewOutcome) {
	m := s.model
	if m.has("renew forgets places") {
		return driver.RenewLost
	}
	if m.has("renew token means place") {
		req.Token = 0
	}
	s.underRule(req.Name, func(q *refQueue, now time.Duration, c *lockqueue.Counter) {
		outcome = driver.RenewLost
		if own, _ := q.Renew(req.Owner, req.Token, req.TTL, now, c); own != nil {
			outcome = driver.RenewQueued
		}
	})
	return outcome
}

// releasePlace ends the place of an owner.
func (s *refStore) releasePlace(req driver.ReleaseRequest) (released bool) {
	m := s.model
	if m.has("release forgets places") {
		return false
	}
	s.underRule(req.Name, func(q *refQueue, now time.Duration, c *lockqueue.Counter) {
		released, _ = q.Release(req.Owner, req.Keep, now, c)
	})
	return released
}

// register begins to send Ask to an owner.
func (s *refStore) register(req driver.AcquireRequest) {
	m := s.model
	if req.Queue == 0 || m.claims.Fair || m.has("interest needs old name") && m.left[m.key(req.Name)] == nil {
		return
	}
	add := func() {
		until := s.now().Add(req.Queue)
		if m.has("interest never ends") {
			until = until.Add(long)
		}
		for _, i := range m.interests {
			if i.by == s && i.name == req.Name && i.owner == req.Owner {
				if until.After(i.until) && !m.has("interest is not prolonged") {
					i.until = until
				}
				return
			}
		}
		m.interests = append(m.interests, &interest{s, req.Name, req.Owner, until})
	}
	if m.has("interest begins late") {
		time.AfterFunc(time.Millisecond, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			add()
		})
		return
	}
	add()
	if m.has("waiting leaks") {
		go func() { time.Sleep(30 * time.Second) }()
	}
}

// ask sends Ask to the owners that are interested in a name.
func (m *model) ask(name string, by *refStore) {
	m.dropped++
	for _, i := range slices.Clone(m.interests) {
		switch {
		case i.name != name, !time.Now().Before(i.until):
		case m.has("asks own store only") && i.by != by:
		case m.has("drops asks") && m.dropped%3 == 0:
		default:
			m.notify(i.by, driver.Notice{Kind: driver.Ask, Name: i.name, Owner: i.owner})
			if m.has("asks once") {
				m.interests = slices.DeleteFunc(m.interests, func(other *interest) bool { return other == i })
			}
			if m.has("asks one waiter") {
				return
			}
		}
	}
}

// askFirst sends Ask to the first place of a name that is kept.
func (s *refStore) askFirst(name string) {
	if places := s.model.places[s.model.key(name)]; len(places) > 0 && !s.model.has("keep is silent") {
		s.model.notify(places[0].Data.by, driver.Notice{Kind: driver.Ask, Name: name, Owner: places[0].Owner})
	}
}

// notify calls the listeners of a store, unless its connection is cut.
func (m *model) notify(s *refStore, n driver.Notice) {
	called := 0
	for l := range m.listeners {
		if l.by == s && !s.cut && (called == 0 || !m.has("one listener")) {
			called++
			l.f(n)
		}
	}
}

// Notify implements driver.Notifier.
func (s *refStore) Notify(f func(driver.Notice)) (stop func()) {
	m := s.model
	m.mu.Lock()
	defer m.mu.Unlock()
	l := &listener{s, f}
	m.listeners[l] = true
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if !m.has("stop does nothing") {
			delete(m.listeners, l)
		}
	}
}

// sever cuts the connections of a store. It is notified again when it has connected.
func (m *model) sever(s *refStore) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.dead = m.has("severed store is dead")
	s.cut = true
	time.AfterFunc(time.Millisecond, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		s.cut = false
		if !m.has("severed is silent") {
			m.notify(s, driver.Notice{Kind: driver.Ask})
		}
		s.cut = m.has("severed stays cut")
	})
}

func (s *refStore) Guarantees() driver.Guarantees {
	g := s.model.claims
	if s.model.has("guarantees vague") {
		g.Scope, g.Store = 0, ""
	}
	if s.model.has("guarantees change") {
		g.Failover = min(driver.FateForgotten, g.Failover+driver.Fate(s.model.dropped))
	}
	return g
}

func (s *refStore) Close() error {
	m := s.model
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.closed && m.has("close fails twice") {
		return driver.ErrClosed
	}
	s.closed = true
	m.broken = m.has("close breaks world")
	for name, e := range m.entries {
		if m.has("close ends all holds") || m.has("close ends detached") && e.detached && e.takenBy == s {
			delete(m.entries, name)
		}
	}
	return nil
}
