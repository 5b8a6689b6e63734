package holdfast

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// batchSize is how many renewals go to the store in one request.
	batchSize = 1024

	// Renewals that are due within this part of their TTL go along with one
	// that is due now, so that many locks make few requests.
	batchWindow = 64

	// suspendCheck is how often the clock is looked at while locks are held,
	// since timers do not count the time of a suspend.
	suspendCheck = time.Second
)

// errNoOutcome is the fault of a store that says nothing about a renewal, not
// even why.
var errNoOutcome = errors.New("the store gave no outcome")

// serve attends to the schedule until the Client is closed.
func (c *Client) serve() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		c.mu.Lock()
		expired, renewals := c.schedule.take(c.clock.now())
		timer.Reset(c.untilNext())
		c.mu.Unlock()

		for _, h := range expired {
			h.err() // notices that the deadline has passed
		}
		for batch := range chunks(renewals, batchSize) {
			c.active.Go(func() { c.renew(batch) })
		}
		select {
		case <-timer.C:
		case <-c.schedule.wake:
		case <-c.closing:
			return
		}
	}
}

// linger is how long the schedule is looked after when there is nothing in it.
// Who takes a lock for a moment, again and again, need not wake anybody then.
const linger = time.Second

// untilNext says for how long the schedule can be left alone. The caller holds
// c.mu.
func (c *Client) untilNext() time.Duration {
	s := &c.schedule
	used := s.used
	s.used = false
	switch {
	case len(s.holds) > 0:
		s.next = s.holds[0].due
	case used:
		s.next = c.clock.now() + linger
	default:
		s.next = 0
		return time.Hour
	}
	sleep := s.next - c.clock.now()
	if c.clock.hosts {
		sleep = min(sleep, suspendCheck)
	}
	return sleep
}

// take returns the holds whose deadline has passed and those that are to be
// renewed, and counts the latter as under way.
func (s *schedule) take(now time.Duration) (expired, renewals []*hold) {
	for len(s.holds) > 0 {
		h := s.holds[0]
		deadline := time.Duration(h.deadline.Load())
		switch {
		case now >= deadline:
			s.remove(h)
			expired = append(expired, h)
		case h.due < deadline && h.due <= now+h.ttl/batchWindow:
			h.due = deadline
			s.put(h)
			h.flights++
			renewals = append(renewals, h)
		case h.due <= now: // the deadline has moved since
			h.due = deadline
			s.put(h)
		default:
			return expired, renewals
		}
	}
	return expired, renewals
}

// renew renews a batch of holds with one request.
func (c *Client) renew(batch []*hold) {
	reqs := make([]driver.RenewRequest, len(batch))
	limit := c.timeout
	for i, h := range batch {
		reqs[i] = driver.RenewRequest{Name: h.full, Owner: h.owner, TTL: h.ttl}
		limit = min(limit, h.ttl/4)
	}
	sent := c.clock.now()
	// Aside: not even a moment's lateness of the store is taken from the time
	// that there is for another try.
	outcomes, err := askAside(c, context.Background(), limit, nil, func(ctx context.Context) ([]driver.RenewOutcome, error) {
		return c.store.Renew(ctx, reqs)
	})
	if err == nil {
		err = errNoOutcome
	}
	for i, h := range batch {
		outcome := driver.RenewUnknown
		if i < len(outcomes) {
			outcome = outcomes[i]
		}
		h.renewed(outcome, sent, h.ttl, err)
	}
}

// renewed takes note of what became of a request to prolong the hold, and that
// it is no longer under way.
func (h *hold) renewed(outcome driver.RenewOutcome, sent, ttl time.Duration, err error) {
	c := h.c
	now := c.clock.now()
	left := time.Duration(h.deadline.Load()) - now
	firstDoubt := false

	c.mu.Lock()
	held := h.end.Load() == nil
	switch {
	case !held:
	case outcome == driver.Renewed:
		h.prolong(sent, ttl)
		h.doubted = false
		h.due = h.nextDue(sent)
		c.planned(h)
	case outcome == driver.RenewUnknown:
		firstDoubt = !h.doubted
		h.doubted = true
		if h.renews {
			h.due = min(now+jitter(h.ttl/12), time.Duration(h.deadline.Load()))
			c.planned(h)
		}
	}
	h.land()
	c.mu.Unlock()

	name := c.strip(h.full)
	switch {
	case !held:
	case outcome == driver.RenewLost:
		h.lose(ErrTaken)
	case outcome == driver.Renewed && c.hooks.Renewed != nil:
		c.hooks.Renewed(name, left)
	case outcome == driver.RenewUnknown:
		if firstDoubt {
			c.warn(context.Background(), "renewal failed, lock in doubt", name, err)
		}
		if c.hooks.InDoubt != nil {
			c.hooks.InDoubt(name, max(left, 0), storeError(context.Background(), err))
		}
	}
}

// extend asks the store to prolong holds, all with one request.
func (c *Client) extend(ctx context.Context, ttl time.Duration, holds ...*hold) error {
	reqs := make([]driver.RenewRequest, len(holds))
	for i, h := range holds {
		if err := h.err(); err != nil || !h.takeOff() {
			c.land(holds[:i])
			return *h.end.Load()
		}
		reqs[i] = driver.RenewRequest{Name: h.full, Owner: h.owner, TTL: ttl}
	}
	sent := c.clock.now()
	outcomes, err := ask(c, ctx, c.timeout, nil, func(ctx context.Context) ([]driver.RenewOutcome, error) {
		return c.store.Renew(ctx, reqs)
	})
	if err == nil {
		err = errNoOutcome
	}
	var lost, unknown error
	for i, h := range holds {
		outcome := driver.RenewUnknown
		if i < len(outcomes) {
			outcome = outcomes[i]
		}
		h.renewed(outcome, sent, ttl, err)
		if end := h.err(); end != nil && lost == nil {
			lost = end
		}
		if outcome == driver.RenewUnknown {
			unknown = storeError(ctx, err)
		}
	}
	if lost != nil {
		return lost
	}
	return unknown
}
