package drivertest

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// sharedCases are about holds that tolerate each other.
var sharedCases = []testCase{
	{
		name:  "unclaimed",
		claim: "A request with a Limit that the store does not claim is refused with ErrUnsupported, and makes neither a hold nor a place.",
		run: func(r *caseRun) {
			h := r.first.acquireFree("held", long)
			for _, limit := range []int{driver.Shared, 1, 2} {
				if limit < 0 && r.guarantees.Shared || limit > 0 && r.guarantees.Limited {
					continue
				}
				for _, name := range []string{"held", "free"} {
					req := r.first.queueRequest(name, long)
					req.Limit = limit
					r.first.expectAcquireError(req, driver.ErrUnsupported)
				}
			}
			r.first.expectFree("free")
			h.releaseHeld()
			r.first.expectFree("held")
		},
	},
	{
		name:     "together",
		claim:    "Shared holds of a name are granted together, through each store, each with a higher token than those before.",
		requires: shared,
		run: func(r *caseRun) {
			var holds []*hold
			for range 3 {
				for _, c := range []*client{r.first, r.otherStore()} {
					holds = append(holds, c.acquireLimited("name", long, driver.Shared))
				}
			}
			r.expectRisingTokens(holds)
			for i, h := range holds {
				for _, later := range holds[i:] {
					later.expectRenewed(long)
				}
				h.releaseHeld()
				h.expectNotReleased()
				h.expectLost()
			}
			r.first.expectFree("name")
		},
	},
	{
		name:     "exclusive",
		claim:    "An exclusive request is refused until the last shared hold is over, and a shared one while there is an exclusive hold.",
		requires: shared,
		run: func(r *caseRun) {
			other := r.otherStore()
			a, b := r.first.acquireLimited("name", long, driver.Shared), other.acquireLimited("name", long, driver.Shared)
			r.first.expectHeld("name")
			other.expectHeld("name")
			a.releaseHeld()
			r.first.expectHeld("name")
			b.releaseHeld()
			h := r.first.acquireFree("name", long)
			other.acquireRefused(other.limitedRequest("name", long, driver.Shared))
			r.expectHigherToken(b, h)
			h.releaseHeld()
			r.expectHigherToken(h, other.acquireLimited("name", long, driver.Shared))
		},
	},
	{
		name:     "own-lease",
		claim:    "Each shared hold has a lease of its own: Renew of one prolongs no other, and one that has expired is over for good.",
		requires: shared,
		run: func(r *caseRun) {
			ends := r.first.acquireLimited("name", short, driver.Shared)
			stays := r.otherStore().acquireLimited("name", medium, driver.Shared)
			last := r.otherStore().acquireLimited("name", medium, driver.Shared)
			stays.expectRenewed(long)
			ends.sleepPastExpiry()
			ends.expectLost()
			ends.expectNotReleased()
			stays.expectRenewed(long)
			// It is not shortened by others: one that is released, or one that ends sooner.
			brief := r.first.acquireLimited("name", short, driver.Shared)
			r.first.acquireLimited("name", long, driver.Shared).releaseHeld()
			brief.sleepPastExpiry()
			r.first.expectHeld("name")
			r.first.acquireLimited("name", short, driver.Shared).sleepPastExpiry()
			r.first.expectHeld("name")
			stays.releaseHeld()
			last.client.heldFor("name", last.sent, medium).releaseHeld()
			last.expectLost()
		},
	},
	{
		name:     "lookup",
		claim:    "Lookup and List show the oldest hold of a name, and with it the others.",
		requires: shared | lookup | list,
		run: func(r *caseRun) {
			var holds []*hold
			for i := range 4 {
				req := r.first.limitedRequest("name", long, driver.Shared)
				req.Holder = fmt.Sprint("host/", i)
				if r.features.contains(metadata) {
					req.Metadata = map[string]string{"i": fmt.Sprint(i)}
				}
				holds = append(holds, r.first.acquireGranted(req))
			}
			gone := holds[1]
			gone.releaseHeld()
			holds = slices.Delete(holds, 1, 2)
			rec, found := r.otherStore().lookupRecord("name")
			if !found {
				r.Fatal("Lookup finds no hold")
			}
			r.expectRecords("Lookup", rec, holds...)
			r.expectRecords("List", r.otherStore().listRecords("")["name"], holds...)
		},
	},
	{
		name:     "break",
		claim:    "Break ends and returns all holds of a name. With a token it ends the hold that has it, and no other.",
		requires: shared | breaking | fencing | lookup,
		run: func(r *caseRun) {
			var holds []*hold
			for range 4 {
				holds = append(holds, r.first.acquireLimited("name", long, driver.Shared))
			}
			for _, i := range []int{2, 0} {
				broken := holds[i]
				rec, found := r.otherStore().breakToken("name", broken.token)
				if !found {
					r.Fatalf("Break with token %d finds no hold", broken.token)
				}
				r.expectRecords("Break with a token", rec, broken)
				broken.expectLost()
				if _, found := r.first.breakToken("name", broken.token); found {
					r.Error("Break with the token of a broken hold finds one")
				}
			}
			left := []*hold{holds[1], holds[3]}
			for _, h := range left {
				h.expectRenewed(long)
			}
			rec, found := r.otherStore().breakHold("name")
			if !found {
				r.Fatal("Break finds no hold")
			}
			r.expectRecords("Break", rec, left...)
			for _, h := range left {
				h.expectLost()
			}
			r.first.expectFree("name")
		},
	},
	{
		name:     "keep",
		claim:    "A keep after a shared hold tolerates shared holds, and no exclusive one.",
		requires: shared | keep,
		run: func(r *caseRun) {
			kept := r.first.acquireLimited("name", long, driver.Shared)
			began := kept.releaseKeep(medium)
			h := r.first.acquireLimited("name", long, driver.Shared)
			r.otherStore().expectHeld("name")
			h.releaseHeld()
			kept.expectLost()
			r.otherStore().heldFor("name", began, medium).releaseHeld()
		},
	},
	{
		name:     "no-overtaking",
		claim:    "A writer that waits is not overtaken by readers, and gets the name after those that were before it.",
		requires: shared | notifying,
		run: func(r *caseRun) {
			reader := r.first.acquireLimited("name", long, driver.Shared)
			for range 3 {
				req := r.first.queueRequest("name", long)
				writer, _ := r.first.wait(req)
				late := r.otherStore().limitedRequest("name", long, driver.Shared)
				r.first.acquireRefused(late)
				reader.releaseHeld()
				r.first.acquireRefused(late)
				if r.features.contains(fair) {
					writer.expectAdmitted()
				} else {
					writer.hold = r.first.acquireGranted(req)
				}
				r.expectHigherToken(reader, writer.hold)
				r.first.acquireRefused(late)
				writer.releaseHeld()
				reader = r.first.acquireGranted(late)
			}
		},
	},
	{
		name:     "waiter-ends",
		claim:    "A writer that no longer waits keeps no reader out: after its Release, or at the end of Queue.",
		requires: shared | notifying,
		run: func(r *caseRun) {
			r.first.acquireLimited("name", long, driver.Shared)
			late := r.otherStore().limitedRequest("name", long, driver.Shared)
			w, _ := r.first.wait(r.first.queueRequest("name", long))
			r.first.acquireRefused(late)
			w.release()
			r.first.acquireGranted(late).releaseHeld()
			w, _ = r.first.wait(r.first.queueRequest("name", medium))
			r.first.refusedFor(r.first.limitedRequest("name", long, driver.Shared), w.sent, medium)
		},
	},
	{
		name:     "admitted-together",
		claim:    "Shared places behind an exclusive hold are admitted together by its Release, up to the next exclusive one.",
		requires: shared | fair,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			var readers []*waiter
			for i := range 6 {
				c := r.first
				if i%2 > 0 {
					c = r.otherStore()
				}
				w, _ := c.wait(c.limitedQueueRequest("name", long, driver.Shared))
				readers = append(readers, w)
			}
			writer, _ := r.first.wait(r.first.queueRequest("name", long))
			last, _ := r.first.wait(r.first.limitedQueueRequest("name", long, driver.Shared))
			if r.guarantees.Lookup {
				if rec, _ := r.first.lookupRecord("name"); rec.Waiting != 8 || len(rec.Others) != 0 {
					r.Errorf("Lookup: %+v, want 8 that wait for one hold", rec)
				}
			}
			h.releaseHeld()
			holds := []*hold{h}
			for _, w := range readers {
				w.expectAdmitted()
				holds = append(holds, w.hold)
			}
			r.expectRisingTokens(holds)
			writer.expectWaiting()
			last.expectWaiting()
			for _, w := range readers {
				w.releaseHeld()
			}
			writer.expectAdmitted()
			last.expectWaiting()
			writer.releaseHeld()
			last.expectAdmitted()
			r.expectRisingTokens([]*hold{holds[6], writer.hold, last.hold})
		},
	},
	{
		name:     "exclusion",
		claim:    "Readers and writers through several stores hold a name together and alone as they request, and each is granted it.",
		requires: shared,
		run: func(r *caseRun) {
			// A writer adds so much that there is room for no reader beside it.
			r.expectSumAtMost(9, func(i int) (limit int, adds int64) {
				if i < 2 {
					return 0, 9
				}
				return driver.Shared, 1
			})
		},
	},
	{
		name:     "limit",
		claim:    "Limited holds are granted up to the Limit of each, each with a token and a lease of its own, and an exclusive one when none is left.",
		requires: limited,
		run: func(r *caseRun) {
			var holds []*hold
			for i := range 3 {
				c := []*client{r.first, r.otherStore()}[i%2]
				holds = append(holds, c.acquireLimited("name", long, 3))
			}
			r.expectRisingTokens(holds)
			more := r.first.acquireLimited("name", long, 4)
			r.first.acquireRefused(r.first.limitedRequest("name", long, 4))
			more.releaseHeld()
			for _, c := range []*client{r.first, r.otherStore()} {
				c.acquireRefused(c.limitedRequest("name", long, 3))
				c.expectHeld("name")
			}
			for _, h := range holds {
				h.expectRenewed(long)
				h.releaseHeld()
				r.first.expectHeld("name")
				r.otherStore().acquireLimited("name", long, 3)
				r.first.acquireRefused(r.first.limitedRequest("name", long, 3))
			}
		},
	},
	{
		name:     "beside-shared",
		claim:    "Shared and limited holds tolerate each other, and shared ones take nothing of a Limit.",
		requires: shared | limited,
		run: func(r *caseRun) {
			a := r.first.acquireLimited("name", long, 2)
			b := r.otherStore().acquireLimited("name", long, driver.Shared)
			c := r.first.acquireLimited("name", long, 2)
			d := r.first.acquireLimited("name", long, driver.Shared)
			r.first.acquireRefused(r.first.limitedRequest("name", long, 2))
			for _, h := range []*hold{a, d, c} {
				h.releaseHeld()
				r.otherStore().expectHeld("name")
			}
			b.releaseHeld()
			r.first.expectFree("name")
		},
	},
	{
		name:     "expired-shares",
		claim:    "Limited holds that expire give back what they had, whatever others do meanwhile.",
		requires: limited,
		run: func(r *caseRun) {
			stays := r.first.acquireLimited("name", long, 10)
			for range 3 {
				last := stays
				for i := range 8 {
					last = []*client{r.first, r.otherStore()}[i%2].acquireLimited("name", short, 10)
					stays.expectRenewed(long)
					if time.Since(last.sent) > short { // a busy machine
						break
					}
				}
				last.sleepPastExpiry()
				last.expectLost()
				r.first.acquireRefused(r.first.limitedRequest("name", long, 1))
				r.first.acquireLimited("name", long, 2).releaseHeld()
			}
			stays.releaseHeld()
			r.first.expectFree("name")
		},
	},
	{
		name:     "kept-share",
		claim:    "A keep after a limited hold keeps the share of that hold.",
		requires: limited | keep,
		run: func(r *caseRun) {
			a, b := r.first.acquireLimited("name", long, 2), r.first.acquireLimited("name", long, 2)
			began := a.releaseKeep(medium)
			b.releaseHeld()
			r.otherStore().acquireRefused(r.otherStore().limitedRequest("name", long, 1))
			r.otherStore().acquireLimited("name", long, 2).releaseHeld()
			r.first.refusedFor(r.first.limitedRequest("name", long, 1), began, medium)
		},
	},
	{
		name:     "small-limit",
		claim:    "A place with a small Limit is not overtaken by requests and places with a greater one, and is admitted when few enough hold.",
		requires: limited | fair,
		run: func(r *caseRun) {
			a, b := r.first.acquireLimited("name", long, 3), r.first.acquireLimited("name", long, 3)
			small, res := r.first.wait(r.first.limitedQueueRequest("name", long, 1))
			if !res.First {
				r.Error("the place with a small Limit is not First")
			}
			great, _ := r.otherStore().wait(r.otherStore().limitedQueueRequest("name", long, 3))
			r.first.acquireRefused(r.first.limitedRequest("name", long, 3))
			a.releaseHeld()
			small.expectWaiting()
			great.expectWaiting()
			b.releaseHeld()
			small.expectAdmitted()
			great.expectAdmitted()
		},
	},
	{
		name:     "sum",
		claim:    "Never more than the Limit hold a name at once, of many owners through several stores, and each is granted it.",
		requires: limited,
		run: func(r *caseRun) {
			r.expectSumAtMost(4, func(int) (limit int, adds int64) {
				return 4, 1
			})
		},
	},
}

// limitedRequest returns a request of a new owner with a Limit.
func (c *client) limitedRequest(name string, ttl time.Duration, limit int) driver.AcquireRequest {
	req := c.newRequest(name, ttl)
	req.Limit = limit
	return req
}

// limitedQueueRequest is limitedRequest with Queue.
func (c *client) limitedQueueRequest(name string, queue time.Duration, limit int) driver.AcquireRequest {
	req := c.queueRequest(name, queue)
	req.Limit = limit
	return req
}

// acquireLimited sends such a request, which must be granted.
func (c *client) acquireLimited(name string, ttl time.Duration, limit int) *hold {
	c.run.Helper()
	return c.acquireGranted(c.limitedRequest(name, ttl, limit))
}

// expectSumAtMost has 9 goroutines acquire a name 15 times each, through three stores. request
// returns the Limit of a goroutine, and what each of its holds adds to a sum. The sum of
// the holds in force must not be above most.
func (r *caseRun) expectSumAtMost(most int64, request func(i int) (limit int, adds int64)) {
	r.Helper()
	stores := []*client{r.first, r.otherStore(), r.otherStore()}
	var sum atomic.Int64
	r.runParallel(9, func(i int) error {
		c := stores[i%len(stores)]
		limit, adds := request(i)
		for range 15 {
			req := c.limitedRequest("name", long, limit)
			if _, err := c.waitForGrant(req); err != nil {
				return err
			}
			var err error
			sum.Add(adds)
			time.Sleep(precision / 4)
			if n := sum.Load(); n > most {
				err = fmt.Errorf("the sum of the holds is %d with this one of %d, want %d at most", n, adds, most)
			}
			sum.Add(-adds)
			if err := errors.Join(err, c.releaseOrError(req.Name, req.Owner)); err != nil {
				return err
			}
		}
		return nil
	})
	r.first.expectFree("name")
}

// expectRisingTokens checks that each hold has a higher token than the one before.
func (r *caseRun) expectRisingTokens(holds []*hold) {
	r.Helper()
	for i := range holds[1:] {
		r.expectHigherToken(holds[i], holds[i+1])
	}
}

// expectRecords checks that a record shows these holds, which were acquired in this order.
func (r *caseRun) expectRecords(what string, rec driver.Record, holds ...*hold) {
	r.Helper()
	shown := append([]driver.Record{rec}, rec.Others...)
	if len(shown) != len(holds) {
		r.Errorf("%s shows %d holds of %d: %+v", what, len(shown), len(holds), rec)
		return
	}
	for i, rec := range shown {
		r.expectRecord(what, rec, holds[i], !r.guarantees.Lookup)
		if rec.Limit != driver.Shared || i > 0 && len(rec.Others) > 0 {
			r.Errorf("%s shows %+v, want a shared hold", what, rec)
		}
	}
}
