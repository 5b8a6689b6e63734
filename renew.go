package holdfast

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// batchSize is how many renewals are sent to the store in one request.
	batchSize = 1024

	// A renewal that is due within TTL/batchWindow is sent with one that is due now, so that many
	// locks need few requests.
	batchWindow = 64

	// suspendCheck is the interval at which the clock is read while locks are held, since timers
	// do not count the time of a suspend.
	suspendCheck = time.Second
)

// errNoOutcome is the error of a store that returns neither an outcome of a renewal nor an error.
var errNoOutcome = errors.New("the store gave no outcome")

// runScheduler renews and expires leases when they are due, until the Client is closed.
func (c *Client) runScheduler() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		c.mu.Lock()
		expired, renewals, places := c.schedule.takeDue(c.clock.now())
		timer.Reset(c.nextSleep())
		c.mu.Unlock()

		for _, l := range expired {
			c.activeCalls.Go(func() { _ = l.checkHeld() }) // marks it as lost
		}
		for _, batch := range c.splitBatches(renewals, false) {
			c.activeCalls.Go(func() {
				_ = c.renewLeases(context.Background(), 0, batch, false) // each lease has its outcome
			})
		}
		for _, batch := range c.splitBatches(places, true) {
			c.activeCalls.Go(func() { _ = c.renewLeases(context.Background(), 0, batch, true) })
		}
		select {
		case <-timer.C:
		case <-c.schedule.wake:
		case <-c.closing:
			return
		}
	}
}

// idleTimeout keeps the scheduler running after its last lease, so that short holds in a loop
// need not wake it each time.
const idleTimeout = time.Second

// nextSleep returns how long the scheduler can sleep. The caller holds c.mu.
func (c *Client) nextSleep() time.Duration {
	s := &c.schedule
	used := s.usedSinceCheck
	s.usedSinceCheck = false
	switch {
	case len(s.leases) > 0:
		s.nextCheck = s.leases[0].dueAt
	case used:
		s.nextCheck = c.clock.now() + idleTimeout
	default:
		s.nextCheck = 0
		return time.Hour
	}
	sleep := s.nextCheck - c.clock.now()
	if c.clock.useBootClock {
		sleep = min(sleep, suspendCheck)
	}
	return sleep
}

// takeDue returns the holds past their deadline, and the holds and places that must be renewed now.
// It counts a request in flight for each renewal.
func (s *schedule) takeDue(now time.Duration) (expired, renewals, places []*lease) {
	for len(s.leases) > 0 {
		l := s.leases[0]
		deadline := time.Duration(l.deadline.Load())
		switch {
		case l.isPlace && l.dueAt <= now+placeTTL(l.options.TTL)/batchWindow:
			s.remove(l) // until the outcome is known
			l.inFlight++
			places = append(places, l)
		case l.isPlace:
			return expired, renewals, places
		case now >= deadline:
			s.remove(l)
			expired = append(expired, l)
		case l.dueAt < deadline && l.dueAt <= now+l.options.TTL/batchWindow:
			l.dueAt = deadline
			s.insertOrFix(l)
			l.inFlight++
			renewals = append(renewals, l)
		default:
			return expired, renewals, places
		}
	}
	return expired, renewals, places
}

// renewTimeout returns how long a renewal may take: there must be time left for other attempts if
// it fails.
func (c *Client) renewTimeout(ttl time.Duration) time.Duration { return min(c.requestTimeout, ttl/4) }

// splitBatches divides leases among requests. The timeout of a request is that of its shortest
// TTL, so leases share a request only if their timeouts are of the same order of magnitude: a
// lock of a short TTL never costs one of a long TTL.
func (c *Client) splitBatches(leases []*lease, places bool) [][]*lease {
	byOrder := map[int][]*lease{}
	for _, l := range leases {
		order := bits.Len64(uint64(c.renewTimeout(l.renewalTTL(places))))
		byOrder[order] = append(byOrder[order], l)
	}
	var batches [][]*lease
	for _, group := range byOrder {
		batches = slices.AppendSeq(batches, slices.Chunk(group, batchSize))
	}
	return batches
}

// renewalTTL returns the TTL of an automatic renewal of the lease, as a place or as a hold.
func (l *lease) renewalTTL(place bool) time.Duration {
	if place {
		return placeTTL(l.options.TTL)
	}
	return l.options.TTL
}

// renewLeases extends leases with one request, by ttl, or renews each by its own TTL if ttl is 0.
// All are holds, or all are places. It returns the reason if an outcome is unknown.
func (c *Client) renewLeases(ctx context.Context, ttl time.Duration, leases []*lease, places bool) error {
	reqs := make([]driver.RenewRequest, len(leases))
	timeout := c.requestTimeout
	for i, l := range leases {
		reqs[i] = driver.RenewRequest{Name: l.fullName, Owner: l.owner, TTL: cmp.Or(ttl, l.renewalTTL(places))}
		if !places {
			reqs[i].Token = l.firstToken
		}
		if ttl == 0 {
			timeout = min(timeout, c.renewTimeout(reqs[i].TTL))
		}
	}
	sent := c.clock.now()
	outcomes, err := request(c, ctx, "renew", timeout, func(ctx context.Context) ([]driver.RenewOutcome, error) {
		return c.store.Renew(ctx, reqs)
	})
	if err == nil {
		err = errNoOutcome
	}
	var unknown error
	var applied sync.WaitGroup
	for i, l := range leases {
		outcome := driver.RenewUnknown
		if i < len(outcomes) {
			outcome = outcomes[i]
		}
		if outcome == driver.RenewUnknown {
			unknown = storeError(ctx, err)
		}
		if places {
			l.applyPlaceOutcome(outcome, sent)
			continue
		}
		// A slow hook or log handler delays its own lock only.
		applied.Go(func() { l.applyOutcome(outcome, sent, reqs[i].TTL, err) })
	}
	applied.Wait()
	return unknown
}

// applyOutcome records the outcome of a request to extend the lease by ttl, which was sent at
// sent, and that it is no longer in flight.
func (l *lease) applyOutcome(outcome driver.RenewOutcome, sent, ttl time.Duration, err error) {
	c := l.c
	now := c.clock.now()
	left := time.Duration(l.deadline.Load()) - now
	firstDoubt := false
	if outcome != driver.RenewLost {
		raiseReading(&l.latestExpiry, now+ttl)
	}

	c.mu.Lock()
	held := l.endReason.Load() == nil
	promised := min(l.promisedTTL, l.options.TTL)
	switch {
	case !held || outcome == driver.RenewLost:
		l.mustRelease = true // The outcome is not recorded, and would be missed by the next holder.
	case outcome == driver.Renewed:
		l.extend(sent, ttl)
		l.renewalFailed = false
		c.reschedule(l)
	case outcome == driver.RenewUnknown:
		firstDoubt = !l.renewalFailed
		l.renewalFailed = true
		if !l.options.NoRenew {
			l.dueAt = min(now+jitter(l.options.TTL/16), time.Duration(l.deadline.Load()))
			c.reschedule(l)
		}
	}
	l.endRequest()
	c.mu.Unlock()

	switch {
	case !held:
	case outcome == driver.RenewLost:
		l.markLost(ErrTaken)
	case outcome == driver.Renewed:
		l.emit(Event{Kind: EventRenewed, Left: left, TTL: promised})
	case outcome == driver.RenewUnknown:
		if firstDoubt {
			c.logWarning(context.Background(), "renewal failed, lock in doubt", c.stripPrefix(l.fullName), err)
		}
		l.emit(Event{Kind: EventInDoubt, Left: max(left, 0), TTL: promised, Err: storeError(context.Background(), err)})
	}
}

// notScheduled is the heapIndex of a lease that is not in the schedule.
const notScheduled = -1

// A schedule holds the leases by the time at which each must be checked next, for its renewal or
// its deadline. One goroutine, runScheduler, serves it. It is guarded by Client.mu.
type schedule struct {
	leases         []*lease      // a heap
	running        bool          // the goroutine runs
	nextCheck      time.Duration // when the goroutine will check, 0 if it sleeps until it is woken
	usedSinceCheck bool          // a lease was added since the last check
	wake           chan struct{} // has room for one
}

// reschedule puts a lease into the schedule, or moves it there, and wakes the scheduler if it
// would check too late. The caller holds c.mu.
func (c *Client) reschedule(l *lease) {
	s := &c.schedule
	s.insertOrFix(l)
	s.usedSinceCheck = true
	if !s.running {
		s.running = true
		c.activeCalls.Go(c.runScheduler)
		return
	}
	if s.nextCheck == 0 || l.dueAt < s.nextCheck {
		s.nextCheck = l.dueAt
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// insertOrFix restores the order of the heap after dueAt of l was set.
func (s *schedule) insertOrFix(l *lease) {
	if l.heapIndex == notScheduled {
		heap.Push(s, l)
		return
	}
	heap.Fix(s, int(l.heapIndex))
}

func (s *schedule) remove(l *lease) {
	if l.heapIndex != notScheduled {
		heap.Remove(s, int(l.heapIndex))
	}
}

// Len, Less, Swap, Push and Pop implement [heap.Interface]: the lease that is due first is on top.
func (s *schedule) Len() int           { return len(s.leases) }
func (s *schedule) Less(i, j int) bool { return s.leases[i].dueAt < s.leases[j].dueAt }

func (s *schedule) Swap(i, j int) {
	s.leases[i], s.leases[j] = s.leases[j], s.leases[i]
	s.leases[i].heapIndex, s.leases[j].heapIndex = int32(i), int32(j)
}

func (s *schedule) Push(x any) {
	l := x.(*lease)
	l.heapIndex = int32(len(s.leases))
	s.leases = append(s.leases, l)
}

func (s *schedule) Pop() any {
	last := len(s.leases) - 1
	l := s.leases[last]
	s.leases[last] = nil
	s.leases = s.leases[:last]
	l.heapIndex = notScheduled
	return l
}

// A lease counts the requests in flight that may extend it. Release waits until there is none, so
// that nothing is written after Release has returned.

// beginRequest registers a request that may extend the lease, unless the lease has ended.
func (l *lease) beginRequest() bool {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.endReason.Load() != nil {
		return false
	}
	l.inFlight++
	return true
}

// endRequest unregisters such a request. The caller holds c.mu.
func (l *lease) endRequest() {
	if l.inFlight--; l.inFlight == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// waitIdle waits until no request is in flight that may extend the lease, which has ended.
func (l *lease) waitIdle() {
	l.c.mu.Lock()
	if l.inFlight == 0 {
		l.c.mu.Unlock()
		return
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	idle := l.idle
	l.c.mu.Unlock()
	<-idle
}
