package drivertest

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var detachedCases = []testCase{
	{
		name:  "unclaimed",
		claim: "A store that does not claim Detached refuses a detached hold with ErrUnsupported, and takes nothing.",
		lacks: detached,
		run: func(r *run) {
			ctx, cancel := r.bound()
			defer cancel()
			res, err := r.first.Acquire(ctx, r.first.detachedRequest("name", long))
			if res.Granted || !errors.Is(err, driver.ErrUnsupported) {
				r.Errorf("Acquire with Detached gives %v, %v, want ErrUnsupported", res.Granted, err)
			}
			r.first.free("name")
		},
	},
	{
		name:  "handed-over",
		claim: "Whoever knows the owner of a detached hold may renew and release it, in another process too.",
		needs: detached,
		run: func(r *run) {
			h := r.first.take(r.first.detachedRequest("name", medium))
			h.c = r.other()
			h.intact()
			h.runOut()
			h.intact()
			h.end()
			r.first.free("name")
		},
	},
	{
		name:  "outlives-store",
		claim: "A detached hold lasts on when the store that asked for it is closed.",
		needs: detached | processes,
		run: func(r *run) {
			h := r.first.take(r.first.detachedRequest("name", long))
			if err := r.first.Close(); err != nil {
				r.Errorf("Close: %v", err)
			}
			h.c = r.open()
			h.intact()
			h.end()
			h.c.free("name")
		},
	},
	{
		name:  "outlives-process",
		claim: "A detached hold lasts on when the process that asked for it has died.",
		needs: detached | processes | crash,
		run: func(r *run) {
			asking := r.open()
			h := asking.take(asking.detachedRequest("name", long))
			again := asking.detachedRequest("name", long)
			again.Owner = h.owner
			asking.take(again)
			r.backing.Crash(r, asking.Store)
			h.c = r.first
			h.intact()
			h.end()
			h.c.free("name")
		},
	},
	{
		name:  "outlives-renewer",
		claim: "A detached hold stays one when another process has renewed it: it lasts on when that one has died.",
		needs: detached | processes | crash,
		run: func(r *run) {
			h := r.first.take(r.first.detachedRequest("name", long))
			h.c = r.open()
			h.c.grant("other name", long) // so that it has what dies with a process
			h.intact()
			r.backing.Crash(r, h.c.Store)
			h.c = r.first
			h.intact()
		},
	},
	{
		name:  "expires",
		claim: "A detached hold ends when its TTL has run out, as any other.",
		needs: detached,
		run: func(r *run) {
			h := r.first.take(r.first.detachedRequest("name", short))
			r.other().outlast("name", h.sent, short)
			h.lost()
		},
	},
}

// detachedRequest makes a request for a hold that outlives who asks.
func (c *client) detachedRequest(name string, ttl time.Duration) driver.AcquireRequest {
	req := c.request(name, ttl)
	req.Detached = true
	return req
}
