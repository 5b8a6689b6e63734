package drivertest

import (
	"context"
	"maps"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A client is a store as a case uses it. Its methods end the case where the
// store returns an error, or refuses what the case builds on. They must be
// called on the goroutine of the case; others use the store itself.
type client struct {
	driver.Store
	r *run
}

// A hold is a hold of a name as its owner sees it.
type hold struct {
	c        *client
	name     string
	owner    string
	holder   string
	metadata map[string]string
	token    int64
	ttl      time.Duration

	// The store granted the hold at some moment between sent and answered.
	sent     time.Time
	answered time.Time
}

// request makes a request with an owner of its own.
func (c *client) request(name string, ttl time.Duration) driver.AcquireRequest {
	return driver.AcquireRequest{Name: name, Owner: c.r.owner(), Holder: "host/1/public", TTL: ttl}
}

func (c *client) acquire(req driver.AcquireRequest) driver.AcquireResult {
	c.r.Helper()
	ctx, cancel := c.r.bound()
	defer cancel()
	res, err := c.Acquire(ctx, req)
	if err != nil {
		c.r.Fatalf("Acquire of %q: %v", req.Name, err)
	}
	return res
}

// grant takes a name that must be free.
func (c *client) grant(name string, ttl time.Duration) *hold {
	c.r.Helper()
	return c.take(c.request(name, ttl))
}

// take sends a request that must be granted.
func (c *client) take(req driver.AcquireRequest) *hold {
	c.r.Helper()
	h := &hold{c: c, name: req.Name, owner: req.Owner, holder: req.Holder, ttl: req.TTL, metadata: maps.Clone(req.Metadata)}
	h.sent = time.Now()
	res := c.acquire(req)
	h.answered = time.Now()
	if !res.Granted {
		c.r.Fatalf("Acquire of %q was refused, want it granted; in the way: %+v", req.Name, res.Held)
	}
	h.token = res.Token
	return h
}

// busy tries a name that must be refused to a stranger, and returns what is in
// the way.
func (c *client) busy(name string) driver.Record {
	c.r.Helper()
	return c.refuse(c.request(name, long))
}

// refuse sends a request that must be refused.
func (c *client) refuse(req driver.AcquireRequest) driver.Record {
	c.r.Helper()
	res := c.acquire(req)
	if res.Granted {
		c.r.Fatalf("Acquire of %q was granted, want it refused", req.Name)
	}
	return res.Held
}

// free checks that a stranger can take the name, and leaves it free.
func (c *client) free(name string) {
	c.r.Helper()
	h := c.grant(name, long)
	c.releaseAs(name, h.owner, 0)
}

// succeed takes a name that is due to become free. It makes no attempt before,
// and leaves the store the slack after.
func (c *client) succeed(name string, due time.Time) *hold {
	c.r.Helper()
	time.Sleep(time.Until(due))
	return c.poll(name, due)
}

// outlast makes attempts all the time until the name is free, and checks that
// it was taken for all of lasts since began, and not much longer.
func (c *client) outlast(name string, began time.Time, lasts time.Duration) *hold {
	c.r.Helper()
	next := c.poll(name, began.Add(lasts))
	if took := next.answered.Sub(began); took < lasts-precision {
		c.r.Errorf("%q was to be had after %v, want it taken for %v", name, took, lasts)
	}
	return next
}

// poll makes attempts until one is granted.
func (c *client) poll(name string, due time.Time) *hold {
	c.r.Helper()
	req := c.request(name, long)
	h := &hold{c: c, name: name, owner: req.Owner, holder: req.Holder, ttl: req.TTL}
	if !c.r.poll(due, func() bool {
		h.sent = time.Now()
		res := c.acquire(req)
		h.answered, h.token = time.Now(), res.Token
		return res.Granted
	}) {
		c.r.Fatalf("%q is not free %v after it was due", name, c.r.slack())
	}
	return h
}

func (c *client) renewAs(name, owner string, ttl time.Duration) driver.RenewOutcome {
	c.r.Helper()
	return c.renewAll(driver.RenewRequest{Name: name, Owner: owner, TTL: ttl})[0]
}

// renewAll sends one batch, which must be answered in full.
func (c *client) renewAll(reqs ...driver.RenewRequest) []driver.RenewOutcome {
	c.r.Helper()
	ctx, cancel := c.r.bound()
	defer cancel()
	outcomes, err := c.Renew(ctx, reqs)
	if err != nil {
		c.r.Fatalf("Renew: %v", err)
	}
	if len(outcomes) != len(reqs) {
		c.r.Fatalf("Renew of %d holds returned %d outcomes", len(reqs), len(outcomes))
	}
	return outcomes
}

func (c *client) releaseAs(name, owner string, keep time.Duration) bool {
	c.r.Helper()
	ctx, cancel := c.r.bound()
	defer cancel()
	released, err := c.Release(ctx, driver.ReleaseRequest{Name: name, Owner: owner, Keep: keep})
	if err != nil {
		c.r.Fatalf("Release of %q: %v", name, err)
	}
	return released
}

func (c *client) lookup(name string) (driver.Record, bool) {
	c.r.Helper()
	ctx, cancel := c.r.bound()
	defer cancel()
	rec, found, err := c.Lookup(ctx, name)
	if err != nil {
		c.r.Fatalf("Lookup of %q: %v", name, err)
	}
	return rec, found
}

func (c *client) breakHold(name string) (driver.Record, bool) {
	c.r.Helper()
	ctx, cancel := c.r.bound()
	defer cancel()
	rec, found, err := c.Break(ctx, name)
	if err != nil {
		c.r.Fatalf("Break of %q: %v", name, err)
	}
	return rec, found
}

// list returns the records under a prefix by name; a name yielded twice fails
// the case.
func (c *client) list(prefix string) map[string]driver.Record {
	c.r.Helper()
	ctx, cancel := c.r.bound()
	defer cancel()
	records := map[string]driver.Record{}
	for rec, err := range c.List(ctx, prefix) {
		if err != nil {
			c.r.Fatalf("List of %q: %v", prefix, err)
		}
		if _, twice := records[rec.Name]; twice {
			c.r.Errorf("List of %q yields %q twice", prefix, rec.Name)
		}
		records[rec.Name] = rec
	}
	return records
}

// watch starts a watch that ends with the case.
func (c *client) watch(name string) <-chan struct{} {
	c.r.Helper()
	return c.watchUntil(c.r.Context(), name)
}

// watchUntil starts a watch that ends with ctx.
func (c *client) watchUntil(ctx context.Context, name string) <-chan struct{} {
	c.r.Helper()
	watcher, ok := c.Store.(driver.Watcher)
	if !ok {
		c.r.Fatal("the store claims Push and does not implement driver.Watcher")
	}
	signals, err := watcher.Watch(ctx, name)
	if err != nil {
		c.r.Fatalf("Watch of %q: %v", name, err)
	}
	return signals
}
