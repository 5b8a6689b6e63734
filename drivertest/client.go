package drivertest

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A client is a store as a case uses it. Its methods end the case if the store
// returns an error, or refuses what the case depends on. They must be called on the
// goroutine of the case. Other goroutines use the embedded store.
type client struct {
	driver.Store
	run     *caseRun
	notices *noticeLog // nil before listen
}

// A hold is a request that was granted, or waits, with what the store has answered.
type hold struct {
	client   *client
	name     string
	owner    string
	holder   string
	metadata map[string]string
	token    int64
	tokens   int // how many the grant has, at least 1
	ttl      time.Duration

	// The store granted the hold at some moment between sent and answered.
	sent     time.Time
	answered time.Time
}

// newRequest returns a request with a new owner.
func (c *client) newRequest(name string, ttl time.Duration) driver.AcquireRequest {
	return driver.AcquireRequest{Name: name, Owner: c.run.newOwner(), Holder: "host/1/public", TTL: ttl}
}

func (c *client) acquire(req driver.AcquireRequest) driver.AcquireResult {
	c.run.Helper()
	ctx, cancel := c.run.callContext()
	defer cancel()
	res, err := c.Acquire(ctx, req)
	if err != nil {
		c.run.Fatalf("Acquire of %q: %v", req.Name, err)
	}
	return res
}

// expectAcquireError checks that a request fails with an error, and is neither granted nor queued.
func (c *client) expectAcquireError(req driver.AcquireRequest, want error) {
	c.run.Helper()
	ctx, cancel := c.run.callContext()
	defer cancel()
	res, err := c.Acquire(ctx, req)
	if res.Granted || res.Queued || !errors.Is(err, want) {
		c.run.Errorf("Acquire with %+v: %+v, %v, want %v", req, res, err, want)
	}
}

// acquireFree acquires a name that must be free. In real time a grant may come so late that little
// of a short TTL is left, and a store may then return an error, and leave a hold that ends by
// itself. The name is then acquired again, for another owner.
func (c *client) acquireFree(name string, ttl time.Duration) *hold {
	c.run.Helper()
	for began := time.Now(); ttl < medium && !c.run.virtual && time.Since(began) < c.run.tolerance(); {
		req := c.newRequest(name, ttl)
		sent := time.Now()
		ctx, cancel := c.run.callContext()
		res, err := c.Acquire(ctx, req)
		cancel()
		if err == nil {
			return c.grantedHold(req, res, sent)
		}
		c.run.Logf("Acquire of %q with a TTL of %v, after %v: %v", name, ttl, time.Since(sent), err)
		c.run.sleepPast(ttl)
	}
	return c.acquireGranted(c.newRequest(name, ttl))
}

// acquireGranted sends a request that must be granted.
func (c *client) acquireGranted(req driver.AcquireRequest) *hold {
	c.run.Helper()
	sent, granted := time.Now(), req
	granted.Metadata = maps.Clone(req.Metadata) // The store may change that of req.
	return c.grantedHold(granted, c.acquire(req), sent)
}

// grantedHold returns the hold of a request that was just answered, and must have been granted.
func (c *client) grantedHold(req driver.AcquireRequest, res driver.AcquireResult, sent time.Time) *hold {
	c.run.Helper()
	if !res.Granted {
		c.run.Fatalf("Acquire of %q was refused, want it granted; in the way: %+v", req.Name, res.Held)
	}
	switch fencing := c.run.guarantees.Fencing; {
	case fencing && (res.Token <= 0 || res.Token > driver.MaxToken):
		c.run.Errorf("the token of a grant of %q is %d", req.Name, res.Token)
	case !fencing && res.Token != 0:
		c.run.Errorf("a store that does not claim Fencing grants the token %d", res.Token)
	}
	return &hold{
		client: c, name: req.Name, owner: req.Owner, holder: req.Holder, ttl: req.TTL, metadata: req.Metadata,
		token: res.Token, tokens: max(res.Tokens, 1), sent: sent, answered: time.Now(),
	}
}

// expectHeld checks that a new owner is refused the name, and returns the record of
// the hold or keep in the way.
func (c *client) expectHeld(name string) driver.Record {
	c.run.Helper()
	return c.acquireRefused(c.newRequest(name, long))
}

// acquireRefused sends a request that must be refused, and returns the record of the
// hold or keep in the way.
func (c *client) acquireRefused(req driver.AcquireRequest) driver.Record {
	c.run.Helper()
	res := c.acquire(req)
	if res.Granted {
		c.run.Fatalf("Acquire of %q was granted, want it refused", req.Name)
	}
	return res.Held
}

// expectFree checks that a new owner can acquire the name, and releases it.
func (c *client) expectFree(name string) {
	c.run.Helper()
	h := c.acquireFree(name, long)
	c.releaseAs(name, h.owner, 0)
}

// eventuallyGranted acquires a name that must become free when it is due, or within
// the tolerance after. It makes no attempt before.
func (c *client) eventuallyGranted(name string, due time.Time) *hold {
	c.run.Helper()
	time.Sleep(time.Until(due))
	return c.pollAcquire(c.newRequest(name, long), due)
}

// heldFor makes attempts until the name is free, and checks that it was taken for
// the whole duration lasts since began, and not much longer.
func (c *client) heldFor(name string, began time.Time, lasts time.Duration) *hold {
	c.run.Helper()
	return c.refusedFor(c.newRequest(name, long), began, lasts)
}

// refusedFor sends a request until it is granted, and checks that it was refused for the whole
// duration lasts since began, and not much longer.
func (c *client) refusedFor(req driver.AcquireRequest, began time.Time, lasts time.Duration) *hold {
	c.run.Helper()
	next := c.pollAcquire(req, began.Add(lasts))
	if took := next.answered.Sub(began); took < lasts-precision {
		c.run.Errorf("%q was to be had after %v, want it taken for %v", req.Name, took, lasts)
	}
	return next
}

// pollAcquire sends a request until it is granted, at the latest shortly after it is due.
func (c *client) pollAcquire(req driver.AcquireRequest, due time.Time) *hold {
	c.run.Helper()
	h := &hold{client: c, name: req.Name, owner: req.Owner, holder: req.Holder, ttl: req.TTL}
	if !c.run.pollUntil(due, func() bool {
		h.sent = time.Now()
		res := c.acquire(req)
		h.answered, h.token, h.tokens = time.Now(), res.Token, max(res.Tokens, 1)
		return res.Granted
	}) {
		c.run.Fatalf("%q is not free %v after it was due", req.Name, c.run.tolerance())
	}
	return h
}

func (c *client) renewAs(name, owner string, ttl time.Duration) driver.RenewOutcome {
	c.run.Helper()
	return c.renewAll(driver.RenewRequest{Name: name, Owner: owner, TTL: ttl})[0]
}

// renewAll sends one batch of renewals, and checks that each has an outcome.
func (c *client) renewAll(reqs ...driver.RenewRequest) []driver.RenewOutcome {
	c.run.Helper()
	ctx, cancel := c.run.callContext()
	defer cancel()
	outcomes, err := c.Renew(ctx, reqs)
	if err != nil {
		c.run.Fatalf("Renew: %v", err)
	}
	if len(outcomes) != len(reqs) {
		c.run.Fatalf("Renew of %d holds returned %d outcomes", len(reqs), len(outcomes))
	}
	return outcomes
}

func (c *client) releaseAs(name, owner string, keep time.Duration) bool {
	c.run.Helper()
	ctx, cancel := c.run.callContext()
	defer cancel()
	released, err := c.Release(ctx, driver.ReleaseRequest{Name: name, Owner: owner, Keep: keep})
	if err != nil {
		c.run.Fatalf("Release of %q: %v", name, err)
	}
	return released
}

// releaseOrError releases a hold, which must exist. It is for any goroutine.
func (c *client) releaseOrError(name, owner string) error {
	ctx, cancel := c.run.callContext()
	defer cancel()
	released, err := c.Release(ctx, driver.ReleaseRequest{Name: name, Owner: owner})
	if err != nil {
		return fmt.Errorf("release of %q: %w", name, err)
	}
	if !released {
		return fmt.Errorf("release of %q by its owner reports no hold", name)
	}
	return nil
}

func (c *client) lookupRecord(name string) (driver.Record, bool) {
	c.run.Helper()
	ctx, cancel := c.run.callContext()
	defer cancel()
	rec, found, err := c.Lookup(ctx, name)
	if err != nil {
		c.run.Fatalf("Lookup of %q: %v", name, err)
	}
	return rec, found
}

func (c *client) breakHold(name string) (driver.Record, bool) {
	c.run.Helper()
	return c.breakToken(name, 0)
}

func (c *client) breakToken(name string, token int64) (driver.Record, bool) {
	c.run.Helper()
	ctx, cancel := c.run.callContext()
	defer cancel()
	rec, found, err := c.Break(ctx, driver.BreakRequest{Name: name, Token: token})
	if err != nil {
		c.run.Fatalf("Break of %q: %v", name, err)
	}
	return rec, found
}

// listRecords returns the records under a prefix by name. A name yielded twice fails
// the case.
func (c *client) listRecords(prefix string) map[string]driver.Record {
	c.run.Helper()
	ctx, cancel := c.run.callContext()
	defer cancel()
	records := map[string]driver.Record{}
	for rec, err := range c.List(ctx, prefix) {
		if err != nil {
			c.run.Fatalf("List of %q: %v", prefix, err)
		}
		if _, twice := records[rec.Name]; twice {
			c.run.Errorf("List of %q yields %q twice", prefix, rec.Name)
		}
		records[rec.Name] = rec
	}
	return records
}
