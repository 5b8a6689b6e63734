package holdfast

import (
	"cmp"
	"container/heap"
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

	// suspendCheck is the interval at which the clock is read while locks are held, since timers do
	// not count the time of a suspend.
	suspendCheck = time.Second
)

// runScheduler renews the holds that are due, and ends those past their deadline, until the Client
// is closed. A hold that is renewed stays in the schedule for its deadline.
func (c *Client) runScheduler() {
	s, timer := &c.schedule, time.NewTimer(0)
	defer timer.Stop()
	for {
		c.mu.Lock()
		now := c.clock.now()
		s.nextCheck = now + time.Hour
		// Leases share a request if their timeouts, of which it has the shortest, are of one order
		// of magnitude: so a lock of a short TTL never costs one of a long TTL.
		groups := map[int][]*lease{}
		for len(s.leases) > 0 {
			l, window := s.leases[0], time.Duration(0)
			deadline := time.Duration(l.deadline.Load())
			if len(groups) > 0 {
				window = l.options.TTL / batchWindow
			}
			if l.due > now+window || l.due == deadline && now < deadline {
				s.nextCheck = l.due
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
			heap.Fix(s, l.index)
		}
		if c.clock.useBootClock && len(s.leases) > 0 {
			s.nextCheck = min(s.nextCheck, now+suspendCheck)
		}
		sleep := s.nextCheck - now
		c.mu.Unlock()
		for _, group := range groups {
			for batch := range slices.Chunk(group, batchSize) {
				c.activeCalls.Go(func() {
					_ = c.renewLeases(context.Background(), 0, batch) // each lease has its outcome
				})
			}
		}
		timer.Reset(sleep)
		select {
		case <-timer.C:
		case <-s.wake:
		case <-s.stop:
			return
		}
	}
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

// A renewal is the renewal of one lease in a request, and what the lease was when that was sent.
type renewal struct {
	l           *lease
	state       leaseState
	sent, asked time.Duration
	confirmed   bool
	look        lookReason
}

// renewLeases renews leases with one request, for d, or each for the time that it needs if d is 0:
// a place for its own until it is granted, one that is not to be renewed only to look at it. The
// caller has counted the request as in flight. It returns the reason if an outcome is unknown.
func (c *Client) renewLeases(ctx context.Context, d time.Duration, leases []*lease) error {
	reqs := make([]driver.RenewRequest, len(leases))
	renewals := make([]renewal, len(leases))
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
		renewals[i] = renewal{l, l.state, sent, asked, l.confirmed, l.look}
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
	for i := range renewals {
		var entry driver.Entry
		if i < len(entries) {
			entry = entries[i]
		}
		if entry.State == driver.Unknown {
			unknown = storeError(ctx, err)
		}
		// A slow hook or log handler delays its own lock only.
		applied.Go(func() { renewals[i].apply(entry, err) })
	}
	applied.Wait()
	return unknown
}

// noteEntry records what the store has answered, and reports whether it has the entry that the
// lease relies on. The time counts from the sending, and is never shortened.
// The caller holds c.mu.
func (r *renewal) noteEntry(entry driver.Entry) bool {
	l := r.l
	forgotten := entry.State == driver.Waiting && (r.state >= granted || l.ticket != nil)
	if entry.State == driver.Lost || forgotten || entry.Token != 0 && l.tokens.first != 0 && entry.Token != l.tokens.first {
		return false
	}
	l.tokens.first = cmp.Or(l.tokens.first, entry.Token)
	l.deadline.Store(max(l.deadline.Load(), int64(r.sent+driver.Validity(r.asked))))
	l.confirmed = l.confirmed || entry.State == driver.Held && r.asked >= l.options.TTL
	if r.asked >= l.options.TTL || !l.confirmed { // A short Extend leaves the renewals as they are.
		l.due = r.sent + min(r.asked, l.options.TTL)/3
	}
	return true
}

// apply records the answer to a renewal, and that it is no longer in flight. If the hold has ended
// meanwhile, or winds up, the answer is dropped.
func (r *renewal) apply(entry driver.Entry, err error) {
	l, c := r.l, r.l.c
	c.mu.Lock()
	l.inFlight--
	c.changed.Broadcast()
	now := c.clock.now()
	left := time.Duration(l.deadline.Load()) - now
	event := Event{Kind: EventRenewed, Left: max(left, 0), TTL: l.options.TTL}
	known := false
	switch {
	case l.state < held:
		l.answer(r, now, entry, err)
		c.mu.Unlock()
		return
	case l.state > held:
		c.mu.Unlock()
		return
	case entry.State == driver.Unknown:
		event.Kind, event.Err = EventInDoubt, storeError(context.Background(), err)
		noticedMeanwhile := l.look == noticed
		l.look = failed
		switch {
		case noticedMeanwhile:
			l.lookAt(now, now)
		case !l.options.NoRenew || r.look != noLook || !r.confirmed:
			l.lookAt(now, min(l.due, now+jitter(max(min(l.options.TTL/16, left/4), time.Millisecond))))
		}
	case r.noteEntry(entry):
		known = true
		if l.look == noticed {
			l.due = now
		}
		l.lookAt(now, l.due)
	default:
		l.look = failed // It is not passed on.
		if entry.State != driver.Lost {
			l.releaseInBackground(0, false)
		}
	}
	c.mu.Unlock()
	switch {
	case event.Err != nil:
		if r.look != failed {
			c.logWarning(context.Background(), "renewal failed, lock in doubt", c.stripPrefix(l.name), err)
		}
		l.emit(event)
	case !known:
		l.lose(ErrTaken)
	case r.confirmed || r.look == failed:
		l.emit(event)
	}
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
// the confirmed end of the place. Anything else leads to a look. The caller holds c.mu.
func (l *lease) noteNotice(token int64) {
	now := l.c.clock.now()
	switch {
	case l.state > held, l.state >= granted && token == l.tokens.first && token != 0:
		return
	case l.state == held:
		l.look = noticed
		if l.inFlight == 0 { // else the answer under way leads to the look
			l.lookAt(now, now)
		}
		return
	case (l.state == requesting || l.state == waiting) && l.place > 0 && token != 0 &&
		now < time.Duration(l.deadline.Load()) && (l.tokens.first == 0 || l.tokens.first == token):
		l.state, l.since, l.tokens.first, l.due = granted, now, token, now
		l.answered, l.queue.failing, l.queue.answeredAt = true, 0, now
	default: // A look, or the next attempt, need not wait.
		l.look, l.due = noticed, now
	}
	l.signal()
}

// notScheduled is the index of a lease that is not in the schedule.
const notScheduled = -1

// A schedule has the holds of callers by the time at which each must be checked next, for its
// renewal or its deadline. One goroutine, runScheduler, serves it. It is guarded by Client.mu.
type schedule struct {
	leases    []*lease      // a heap
	running   bool          // the goroutine runs
	nextCheck time.Duration // when the goroutine will check
	wake      chan struct{} // has room for one
	stop      chan struct{} // closed by Close
}

// lookAt puts a hold into the schedule, or moves it there, and wakes the scheduler if that would
// check too late. A hold is looked at by its deadline, which MaxHold bounds; one that is not to be
// renewed only then, unless something is not known of it, as the TTL of one that was granted by a
// notice. The caller holds c.mu.
func (l *lease) lookAt(now, due time.Duration) {
	c, s := l.c, &l.c.schedule
	deadline, last := time.Duration(l.deadline.Load()), l.options.NoRenew || l.state == winding
	if most := l.options.MaxHold; most > 0 && deadline-l.since >= most {
		deadline, last = l.since+most, true
		l.deadline.Store(int64(deadline))
	}
	if l.due = min(due, deadline); last && l.confirmed && l.look == noLook {
		l.due = deadline
	}
	if l.index == notScheduled {
		heap.Push(s, l)
	} else {
		heap.Fix(s, l.index)
	}
	if due = l.due; c.clock.useBootClock {
		due = min(due, now+suspendCheck)
	}
	if !s.running {
		s.running = true
		c.activeCalls.Go(c.runScheduler)
	} else if due < s.nextCheck {
		s.nextCheck = due
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// Len, Less, Swap, Push and Pop implement [heap.Interface]: the lease that is due first is on top.
func (s *schedule) Len() int           { return len(s.leases) }
func (s *schedule) Less(i, j int) bool { return s.leases[i].due < s.leases[j].due }

func (s *schedule) Swap(i, j int) {
	s.leases[i], s.leases[j] = s.leases[j], s.leases[i]
	s.leases[i].index, s.leases[j].index = i, j
}

func (s *schedule) Push(x any) {
	l := x.(*lease)
	l.index = len(s.leases)
	s.leases = append(s.leases, l)
}

func (s *schedule) Pop() any {
	last := len(s.leases) - 1
	l := s.leases[last]
	s.leases[last] = nil
	s.leases = s.leases[:last]
	l.index = notScheduled
	return l
}
