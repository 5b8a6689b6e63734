package drivertest

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A noticeLog has the notices of a store in the order in which they came.
type noticeLog struct {
	mu      sync.Mutex
	notices []driver.Notice
	changed chan struct{} // closed by the next notice
}

// A waiter is an owner that waits for a name: it has a place, or gets Ask notices.
type waiter struct {
	*hold // with the Queue as its TTL, and without a token until it is admitted

	log  *noticeLog
	seen int // how many notices the waiter has examined
}

// listen returns the log of the notices of the store, from the first call to the end of the case.
func (c *client) listen() *noticeLog {
	c.run.Helper()
	if c.notices == nil {
		var stop func()
		c.notices, stop = c.startNotify()
		c.run.Cleanup(stop)
	}
	return c.notices
}

// startNotify returns a log of the notices of the store until stop is called.
func (c *client) startNotify() (log *noticeLog, stop func()) {
	c.run.Helper()
	notifier, ok := c.Store.(driver.Notifier)
	if !ok {
		c.run.Fatal("the store answers Queued and does not implement driver.Notifier")
	}
	log = &noticeLog{changed: make(chan struct{})}
	return log, notifier.Notify(func(n driver.Notice) {
		log.mu.Lock()
		defer log.mu.Unlock()
		log.notices = append(log.notices, n)
		close(log.changed)
		log.changed = make(chan struct{})
	})
}

// since returns the notices after the first n, and a channel that the next notice closes.
func (l *noticeLog) since(n int) ([]driver.Notice, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.notices[n:len(l.notices):len(l.notices)], l.changed
}

// count returns how many notices have come.
func (l *noticeLog) count() int {
	notices, _ := l.since(0)
	return len(notices)
}

// queueRequest returns a request of a new owner for a place.
func (c *client) queueRequest(name string, queue time.Duration) driver.AcquireRequest {
	req := c.newRequest(name, long)
	req.Queue = queue
	return req
}

// wait sends a request with Queue for a name that is taken, which must be queued.
func (c *client) wait(req driver.AcquireRequest) (*waiter, driver.AcquireResult) {
	c.run.Helper()
	c.listen()
	w, res, err := c.waitOrError(req)
	if err != nil {
		c.run.Fatal(err)
	}
	if !res.Queued {
		c.run.Fatalf("Acquire of %q with Queue: %+v, want it queued", req.Name, res)
	}
	return w, res
}

// queueUp makes a place in the queue of a name that is taken.
func (c *client) queueUp(name string, queue time.Duration) *waiter {
	c.run.Helper()
	w, _ := c.wait(c.queueRequest(name, queue))
	return w
}

// waitForAsk makes a waiter of a store that is not Fair, for a name that is taken.
func (c *client) waitForAsk(name string, queue time.Duration) *waiter {
	c.run.Helper()
	w, res := c.wait(c.queueRequest(name, queue))
	if res.First {
		c.run.Errorf("Acquire of %q is answered First, and the owner has no place", name)
	}
	return w
}

// waitOrError is wait for any goroutine. The request may be granted. The store has a log already.
func (c *client) waitOrError(req driver.AcquireRequest) (*waiter, driver.AcquireResult, error) {
	ctx, cancel := c.run.callContext()
	defer cancel()
	w := &waiter{log: c.notices, seen: c.notices.count(), hold: &hold{
		client: c, name: req.Name, owner: req.Owner, holder: req.Holder, metadata: maps.Clone(req.Metadata), ttl: req.Queue,
	}}
	w.sent = time.Now()
	res, err := c.Acquire(ctx, req)
	w.answered, w.token, w.tokens = time.Now(), res.Token, max(res.Tokens, 1)
	if err != nil {
		return w, res, fmt.Errorf("acquire of %q with Queue: %w", req.Name, err)
	}
	if res.Granted == res.Queued {
		return w, res, fmt.Errorf("acquire of %q with Queue: %+v, want it granted or queued", req.Name, res)
	}
	return w, res, nil
}

// nextNotice returns the next notice that concerns the owner, and false if there is none until the
// channel has a value.
func (w *waiter) nextNotice(timeout <-chan time.Time) (driver.Notice, bool) {
	for {
		notices, changed := w.log.since(w.seen)
		for _, n := range notices {
			w.seen++
			if (n.Name == w.name || n.Name == "") && (n.Owner == w.owner || n.Owner == "") {
				return n, true
			}
		}
		select {
		case <-changed:
		case <-timeout:
			return driver.Notice{}, false
		}
	}
}

// expectAsk waits for an Ask notice.
func (w *waiter) expectAsk() {
	w.client.run.Helper()
	if n, ok := w.nextNotice(time.After(w.client.run.tolerance())); !ok {
		w.client.run.Fatalf("no notice came for a waiter of %q, want Ask", w.name)
	} else if n.Kind != driver.Ask {
		w.client.run.Fatalf("a waiter of %q is sent %+v, want Ask", w.name, n)
	}
}

// asked reports whether an Ask notice has come that was not examined before.
func (w *waiter) asked() bool {
	now := make(chan time.Time)
	close(now)
	n, ok := w.nextNotice(now)
	return ok && n.Kind == driver.Ask
}

// expectAdmitted waits until the store notifies the waiter that its place is admitted.
func (w *waiter) expectAdmitted() {
	w.client.run.Helper()
	if err := w.waitAdmitted(); err != nil {
		w.client.run.Fatal(err)
	}
}

// waitAdmitted waits for a Granted notice, or for an Ask after which a Claim is granted. It does
// not prolong the place. A Claim that a server cannot serve now is sent again, as a Client does.
func (w *waiter) waitAdmitted() error {
	began, timeout := time.Now(), time.After(w.client.run.tolerance())
	for {
		switch n, ok := w.nextNotice(timeout); {
		case !ok:
			return fmt.Errorf("no notice came for the place whose turn it is in the queue of %q", w.name)
		case n.Kind == driver.Granted:
			w.token, w.tokens = n.Token, max(n.Tokens, 1)
			return nil
		case n.Kind == driver.Ask:
			var res driver.AcquireResult
			var err error
			for again := true; again; {
				ctx, cancel := w.client.run.callContext()
				res, err = w.client.Acquire(ctx, w.claimRequest(driver.MinTTL, driver.MinTTL))
				cancel()
				later := (*driver.RetryError)(nil)
				again = errors.As(err, &later) && time.Since(began) < w.client.run.tolerance()
			}
			if err != nil {
				return fmt.Errorf("claim of the place in the queue of %q: %w", w.name, err)
			}
			if !res.Granted && !res.Queued {
				return fmt.Errorf("claim of the place in the queue of %q: %+v, want it granted or queued", w.name, res)
			}
			if res.Granted {
				w.token, w.tokens = res.Token, max(res.Tokens, 1)
				return nil
			}
		}
	}
}

// expectTurns releases the hold, and checks that the places are admitted in this order, each by the
// Release of the hold before it, and that the name is free after them.
func (h *hold) expectTurns(waiters ...*waiter) {
	h.client.run.Helper()
	h.releaseHeld()
	for _, w := range waiters {
		w.expectAdmitted()
		w.releaseHeld()
	}
	h.client.expectFree(h.name)
}

// expectWaiting checks that the owner has a place, and does not prolong it.
func (w *waiter) expectWaiting() {
	w.client.run.Helper()
	if got := w.renewFor(driver.MinTTL); got != driver.RenewQueued {
		w.client.run.Errorf("Renew of the place in the queue of %q is answered %d, want RenewQueued", w.name, got)
	}
}

// claimRequest returns a Claim of the owner.
func (h *hold) claimRequest(ttl, queue time.Duration) driver.AcquireRequest {
	return driver.AcquireRequest{
		Name: h.name, Owner: h.owner, Holder: h.holder, Metadata: h.metadata,
		TTL: ttl, Queue: queue, Tokens: driver.MaxTokens, Claim: true,
	}
}

func (h *hold) claim(ttl, queue time.Duration) driver.AcquireResult {
	h.client.run.Helper()
	return h.client.acquire(h.claimRequest(ttl, queue))
}

// expectClaimed checks that a Claim finds the hold.
func (h *hold) expectClaimed(ttl time.Duration) {
	h.client.run.Helper()
	res := h.claim(ttl, driver.MinTTL)
	if !res.Granted || res.Queued || res.Token != h.token || max(res.Tokens, 1) > h.tokens {
		h.client.run.Errorf("Claim of the hold of %q: %+v, want %d tokens from %d", h.name, res, h.tokens, h.token)
	}
}

// expectNothingClaimed checks that a Claim finds neither a hold nor a place, that it makes none,
// and that there is nothing to renew or release.
func (h *hold) expectNothingClaimed() {
	h.client.run.Helper()
	for range 2 {
		if res := h.claim(long, long); res.Granted || res.Queued || res.Token != 0 {
			h.client.run.Errorf("Claim of %q by an owner that has nothing: %+v, want neither Granted nor Queued", h.name, res)
		}
	}
	h.expectLost()
	h.expectNotReleased()
}
