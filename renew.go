package holdfast

import (
	"cmp"
	"context"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// batchSize is how many renewals are sent to the store in one request.
	batchSize = 1024

	// A renewal that is due within TTL/batchWindow is sent with one that is due now. So the locks
	// of a Client are soon renewed together, by one request in TTL/3.
	batchWindow = 6
)

// checkLeases renews the holds that are due, and ends those past their deadline. A hold that is
// renewed stays in the schedule for its deadline. The timer calls it.
func (c *Client) checkLeases() {
	defer c.activeCalls.Done()
	s := &c.schedule
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.nextCheck = 0; len(s.heap) == 0 {
		return
	}
	now := c.clock.now()
	// Leases share a request, which has the shortest of their timeouts, if these differ by less
	// than a factor of two: so a lock of a short TTL never costs one of a long TTL.
	groups := map[int][]*lease{}
	for {
		l, window := s.heap[0], time.Duration(0)
		deadline := time.Duration(l.deadline.Load())
		if len(groups) > 0 && now < deadline {
			window = l.options.TTL / batchWindow
		}
		if l.due > now+window || l.due == deadline && now < deadline {
			c.checkBy(now, l.due)
			break
		}
		l.due = deadline
		if now >= deadline {
			l.due = now + time.Hour // until it is lost
			c.activeCalls.Go(l.checkDeadline)
		} else {
			l.inFlight++
			order := bits.Len64(uint64(l.renewTimeout(now)))
			groups[order] = append(groups[order], l)
		}
		s.sift(0, l)
	}
	for _, group := range groups {
		for batch := range slices.Chunk(group, batchSize) {
			c.activeCalls.Go(func() {
				_ = c.renewLeases(context.Background(), 0, batch) // each lease has its outcome
			})
		}
	}
}

// checkBy sets the timer that calls checkLeases, unless it fires by due. A timer that is late, on a
// busy machine or after a suspend, is set to fire at once, but only once. The caller holds c.mu.
func (c *Client) checkBy(now, due time.Duration) {
	s := &c.schedule
	if c.clock.useBootClock { // The timer does not count the time of a suspend.
		due = min(due, now+time.Second)
	}
	if due = min(due, cmp.Or(s.nextCheck, due)); due <= now {
		due = 1 // at once
	}
	if due == s.nextCheck {
		return
	}
	if s.nextCheck = due; s.timer == nil {
		s.timer = time.AfterFunc(due-now, c.checkLeases)
	} else if s.timer.Reset(due - now) {
		return // The former call does not come.
	}
	c.activeCalls.Add(1) // Close waits for the call.
}

// renewTimeout returns how long a renewal may take: it leaves time for other attempts if it fails.
// The caller holds c.mu.
func (l *lease) renewTimeout(now time.Duration) time.Duration {
	left, most, least := time.Duration(l.deadline.Load())-now, l.options.TTL, cmp.Or(l.place, l.options.TTL)/4
	if l.state == held {
		most, least = most/4, 0
	}
	return min(l.c.config.RequestTimeout, most, max(left/2, soon, least))
}

// A sentRequest is what an Acquire or a Renew has asked for one lease, and what that was then.
type sentRequest struct {
	l           *lease
	state       leaseState
	sent, asked time.Duration // when it was sent, and for how long it asked
	look        lookReason
}

// renewLeases renews leases with one request, for d, or if d is 0 for the time that each needs: a
// place for its own until it is granted, others for the TTL. A hold that is not to be renewed is
// only looked at then. The caller has counted the request as in flight. renewLeases returns the
// reason if an outcome is unknown.
func (c *Client) renewLeases(ctx context.Context, d time.Duration, leases []*lease) error {
	reqs := make([]driver.RenewRequest, len(leases))
	sentRequests := make([]sentRequest, len(leases))
	timeout := c.config.RequestTimeout
	c.mu.Lock()
	sent := c.clock.now()
	for i, l := range leases {
		asked := cmp.Or(d, l.options.TTL)
		switch {
		case l.state < granted && l.place > 0:
			asked = l.place
		case l.state > held, l.state == held && l.options.NoRenew && d == 0:
			asked = driver.MinTTL
		}
		sentRequests[i] = sentRequest{l, l.state, sent, asked, l.look}
		reqs[i] = driver.RenewRequest{Name: l.name, Owner: l.owner, Token: l.tokens.first, TTL: asked}
		l.look, l.longest = noLook, max(l.longest, asked)
		timeout = min(timeout, l.renewTimeout(sent))
	}
	c.mu.Unlock()
	entries, err := request(c, ctx, "renew", timeout, func(ctx context.Context) ([]driver.Entry, error) {
		return c.store.Renew(ctx, reqs)
	})
	if err == nil {
		err = errNotAnswered // for an entry without an outcome
	}
	var unknown error
	var applied sync.WaitGroup
	for i := range sentRequests {
		var entry driver.Entry
		if i < len(entries) {
			entry = entries[i]
		}
		if entry.State == driver.Unknown {
			unknown = storeError(ctx, err)
		}
		// A slow hook or log handler delays its own lock only.
		applied.Go(func() { sentRequests[i].settle(entry, err) })
	}
	applied.Wait()
	return unknown
}

// settle applies the answer to a renewal, which is no longer in flight, and reports it.
func (r *sentRequest) settle(entry driver.Entry, err error) {
	l, c := r.l, r.l.c
	c.mu.Lock()
	l.inFlight--
	c.changed.Broadcast()
	now, isHold, confirmed := c.clock.now(), l.state == held, l.confirmed
	event := Event{Kind: EventRenewed, Left: max(time.Duration(l.deadline.Load())-now, 0), TTL: l.options.TTL}
	state := r.apply(now, entry, err)
	c.mu.Unlock()
	switch {
	case !isHold:
	case state == driver.Unknown:
		if r.look != failed {
			c.logWarning(context.Background(), "renewal failed, lock in doubt", c.stripPrefix(l.name), err)
		}
		event.Kind, event.Err = EventInDoubt, storeError(context.Background(), err)
		l.emit(event)
	case state == driver.Lost:
		l.lose(ErrTaken)
	case confirmed || r.look == failed:
		l.emit(event)
	}
}

// apply applies the answer to a request to its lease, and returns what it shows: Unknown, for err,
// Lost, if the store does not have the entry that the lease relies on, Waiting, or Held. The
// deadline counts from the sending, and never moves nearer. The answer is dropped if the hold has
// ended meanwhile, or winds up. The caller holds c.mu.
func (r *sentRequest) apply(now time.Duration, entry driver.Entry, err error) driver.State {
	l, q, ttl, state := r.l, r.l.queue, r.l.options.TTL, entry.State
	if state == driver.Waiting && (r.state >= granted || l.ticket != nil) ||
		entry.Token != 0 && l.tokens.first != 0 && entry.Token != l.tokens.first {
		state = driver.Lost
	}
	switch calling := l.state < held; {
	case l.state > held:
	case state == driver.Unknown && calling:
		l.due = now + l.noteFailure(now, r.sent, err)
	case state == driver.Unknown:
		again, left := l.look == noticed, time.Duration(l.deadline.Load())-now
		l.look = failed
		switch {
		case again:
			l.checkAt(now, now)
		case !l.options.NoRenew || r.look != noLook: // else Extend has failed, which its caller repeats
			l.checkAt(now, min(l.due, now+jitter(max(min(ttl/16, left/4), time.Millisecond))))
		}
	case state == driver.Lost && l.ticket != nil && calling:
		l.err = errTicketExpired
	case state == driver.Lost && calling:
		// An outage goes on: that the store answers renewals does not show that it makes entries.
		l.restart(now, l.state == waiting && entry.State == driver.Lost)
	case state == driver.Lost:
		l.look = failed // It is not passed on.
		if entry.State != driver.Lost {
			l.releaseInBackground(0, false)
		}
	default:
		l.deadline.Store(max(l.deadline.Load(), int64(r.sent+driver.Validity(r.asked))))
		l.confirmed = l.confirmed || state == driver.Held && r.asked >= ttl
		if r.asked >= ttl || !l.confirmed { // A short Extend leaves the renewals as they are.
			l.due = r.sent + min(r.asked, ttl)/3
		}
		if calling && now < time.Duration(l.deadline.Load()) {
			q.outageFrom, q.answeredAt = 0, now
		}
		if l.state < granted {
			l.tokens.first = cmp.Or(l.tokens.first, entry.Token)
			if l.state = waiting; state == driver.Held {
				l.state, l.since = granted, now
			} else if l.heldUntil > now {
				l.due = min(l.due, l.heldUntil)
			}
		}
		if l.look == noticed || l.state == granted && !l.confirmed {
			l.due = now
		}
		if !calling {
			l.checkAt(now, l.due)
		}
	}
	return state
}

// onNotice handles a notice of the store. It does not block.
func (c *Client) onNotice(name, owner string, token int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if name == "" {
		for l := range c.leases {
			l.noteNotice(0)
		}
		return
	}
	if q := c.queues[name]; q != nil {
		for _, l := range q.leases {
			if owner == "" || owner == l.owner {
				l.noteNotice(token)
			}
		}
	}
}

// noteNotice handles a notice for the lease. The token of its place means that it is granted, until
// the confirmed end of the place. The token of a hold says nothing new, nor does a notice for a
// hold that has ended. Any other leads to a look, or the next attempt. The caller holds c.mu.
func (l *lease) noteNotice(token int64) {
	now := l.c.clock.now()
	switch {
	case l.state > held, l.state >= granted && token == l.tokens.first && token != 0:
		return
	case l.state == held:
		l.look = noticed
		if l.inFlight == 0 { // else the answer under way leads to the look
			l.checkAt(now, now)
		}
		return
	case (l.state == requesting || l.state == waiting) && l.place > 0 && token != 0 &&
		now < time.Duration(l.deadline.Load()) && (l.tokens.first == 0 || l.tokens.first == token):
		l.state, l.since, l.tokens.first, l.due = granted, now, token, now
		l.queue.outageFrom, l.queue.answeredAt = 0, now
	default: // A look, or the next attempt, need not wait.
		l.look, l.due = noticed, now
	}
	l.signal()
}

// A schedule has the holds of callers by the time at which each must be checked next, for its
// renewal or its deadline. It is guarded by Client.mu.
type schedule struct {
	heap      []*lease      // the first to be due is on top, and i is above 2*i+1 and 2*i+2
	timer     *time.Timer   // calls checkLeases; nil before the first hold
	nextCheck time.Duration // when it does; 0 for never
}

// sift puts a lease into the gap i of the heap, or where it belongs above or below that.
func (s *schedule) sift(i int, l *lease) {
	for above := (i - 1) / 2; i > 0 && l.due < s.heap[above].due; i, above = above, (above-1)/2 {
		s.heap[i], s.heap[above].index = s.heap[above], i
	}
	for below := 2*i + 1; below < len(s.heap); i, below = below, 2*below+1 {
		if below+1 < len(s.heap) && s.heap[below+1].due < s.heap[below].due {
			below++
		}
		if l.due <= s.heap[below].due {
			break
		}
		s.heap[i], s.heap[below].index = s.heap[below], i
	}
	s.heap[i], l.index = l, i
}

// checkAt puts a hold into the schedule, or moves it there, to be checked at due, or at its
// deadline if that comes first. MaxHold bounds the deadline. A hold that is not to be renewed is
// checked at its deadline alone, unless something of it is not known. The caller holds c.mu.
func (l *lease) checkAt(now, due time.Duration) {
	c, s := l.c, &l.c.schedule
	deadline, last := time.Duration(l.deadline.Load()), l.options.NoRenew || l.state == winding
	if most := l.options.MaxHold; most > 0 && deadline-l.since >= most {
		deadline, last = l.since+most, true
		l.deadline.Store(int64(deadline))
	}
	if l.due = min(due, deadline); last && l.confirmed && l.look == noLook {
		l.due = deadline
	}
	if l.index >= len(s.heap) || s.heap[l.index] != l {
		l.index, s.heap = len(s.heap), append(s.heap, l)
	}
	s.sift(l.index, l)
	c.checkBy(now, l.due)
}
