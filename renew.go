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

// runScheduler renews and expires leases when they are due, until the Client is closed.
func (c *Client) runScheduler() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		c.mu.Lock()
		now := c.clock.now()
		renewals := c.takeDue(now)
		if c.clock.useBootClock && len(c.schedule.leases) > 0 {
			c.schedule.nextCheck = min(c.schedule.nextCheck, now+suspendCheck)
		}
		sleep := c.schedule.nextCheck - now
		// Leases share a request if their timeouts, of which it has the shortest, are of one order
		// of magnitude: so a lock of a short TTL never costs one of a long TTL.
		groups := map[int][]*lease{}
		for _, l := range renewals {
			order := bits.Len64(uint64(l.renewTimeout(now)))
			groups[order] = append(groups[order], l)
		}
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
		case <-c.schedule.wake:
		case <-c.schedule.stop:
			return
		}
	}
}

// takeDue returns the holds that must be renewed now, ends those past their deadline, and sets when
// the next ones are due. A hold that is renewed stays in the schedule for its deadline. The caller
// holds c.mu.
func (c *Client) takeDue(now time.Duration) (renewals []*lease) {
	s := &c.schedule
	s.nextCheck = now + time.Hour
	for len(s.leases) > 0 {
		l, window := s.leases[0], time.Duration(0)
		deadline := time.Duration(l.deadline.Load())
		if len(renewals) > 0 {
			window = l.options.TTL / batchWindow
		}
		switch {
		case now >= deadline:
			s.remove(l)
			c.activeCalls.Go(func() { l.checkDeadline() })
		case l.due > now+window, l.due == deadline:
			s.nextCheck = l.due
			return renewals
		default:
			l.due = deadline
			heap.Fix(s, l.index)
			l.inFlight++
			renewals = append(renewals, l)
		}
	}
	return renewals
}

// renewTimeout returns how long a renewal may take: it leaves time for other attempts if it fails.
// The caller holds c.mu.
func (l *lease) renewTimeout(now time.Duration) time.Duration {
	left := time.Duration(l.deadline.Load()) - now
	return min(l.c.config.RequestTimeout, l.options.TTL/4, max(left/2, soon))
}

// A renewal is the renewal of one hold in a request, and what the hold was when that was sent.
type renewal struct {
	l         *lease
	sent      time.Duration
	asked     time.Duration
	confirmed bool
	look      lookReason
}

// renewLeases renews holds with one request, for d, or each for its own TTL if d is 0: one that is
// not to be renewed is only looked at. The caller has counted the request as in flight. It returns
// the reason if an outcome is unknown.
func (c *Client) renewLeases(ctx context.Context, d time.Duration, leases []*lease) error {
	reqs := make([]driver.RenewRequest, len(leases))
	renewals := make([]renewal, len(leases))
	timeout := c.config.RequestTimeout
	c.mu.Lock()
	sent := c.clock.now()
	for i, l := range leases {
		asked := cmp.Or(d, l.options.TTL)
		if d == 0 && l.options.NoRenew {
			asked = driver.MinTTL
		}
		renewals[i] = renewal{l, sent, asked, l.confirmed, l.look}
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

// apply records the answer to a renewal, and that it is no longer in flight. If the hold has ended
// meanwhile, the answer is dropped.
func (r *renewal) apply(entry driver.Entry, err error) {
	l, c := r.l, r.l.c
	c.mu.Lock()
	l.inFlight--
	c.changed.Broadcast()
	now := c.clock.now()
	left := time.Duration(l.deadline.Load()) - now
	event := Event{Kind: EventRenewed, Left: max(left, 0), TTL: l.options.TTL}
	ended, lost := l.state != held, false
	switch {
	case ended:
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
	case entry.State != driver.Held, // For a place, the store has forgotten the grant.
		entry.Token != 0 && l.tokens.first != 0 && entry.Token != l.tokens.first:
		lost, l.look = true, failed // It is not passed on.
	default:
		l.noteAnswer(r.sent, r.asked, entry)
		if l.look == noticed {
			l.due = now
		}
		l.lookAt(now, l.due)
	}
	c.mu.Unlock()
	switch {
	case ended:
	case lost:
		l.lose(ErrTaken)
		if entry.State != driver.Lost {
			c.mu.Lock()
			l.releaseInBackground(false)
			c.mu.Unlock()
		}
	case event.Err != nil:
		if r.look != failed {
			c.logWarning(context.Background(), "renewal failed, lock in doubt", c.stripPrefix(l.name), err)
		}
		l.emit(event)
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
	a, now := l.op, l.c.clock.now()
	switch {
	case l.state > held, l.state == held && token == l.tokens.first && token != 0:
		return
	case a == nil:
		l.look = noticed
		if l.inFlight == 0 { // else the answer under way leads to the look
			l.lookAt(now, now)
		}
		return
	case (l.state == requesting || l.state == waiting) && a.place > 0 && token != 0 && now < time.Duration(l.deadline.Load()) &&
		(l.tokens.first == 0 || l.tokens.first == token):
		l.state, l.since, l.tokens.first, l.look = held, now, token, noLook
		a.answered, a.queue.failing, a.queue.answeredAt = true, 0, now
		if l.options.NoRenew || l.options.Detached { // The caller waits for an answer.
			l.due = now
		}
	default: // A look, or the next attempt, need not wait.
		l.look, l.due = noticed, now
	}
	a.signal()
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
// renewed only then, unless something is not known of it. The caller holds c.mu.
func (l *lease) lookAt(now, due time.Duration) {
	c, s := l.c, &l.c.schedule
	deadline, last := time.Duration(l.deadline.Load()), l.options.NoRenew
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

func (s *schedule) remove(l *lease) {
	if l.index != notScheduled {
		heap.Remove(s, l.index)
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
