package drivertest

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var expiryCases = []testCase{
	{
		name:  "not-early",
		claim: "A hold lasts its whole TTL, to the millisecond.",
		run: func(r *caseRun) {
			other := r.otherStore()
			for _, ttl := range []time.Duration{driver.MinTTL, 37 * time.Millisecond, 250 * time.Millisecond} {
				h := r.first.acquireFree("name", ttl)
				other.heldFor("name", h.sent, ttl).releaseHeld()
			}
		},
	},
	{
		name:  "not-late",
		claim: "A hold that is not renewed ends when its TTL has run out.",
		run: func(r *caseRun) {
			other := r.otherStore()
			for _, ttl := range []time.Duration{driver.MinTTL, 37 * time.Millisecond, 250 * time.Millisecond} {
				h := r.first.acquireFree("name", ttl)
				other.eventuallyGranted("name", h.answered.Add(ttl)).releaseHeld()
			}
		},
	},
	{
		name:  "longest",
		claim: "A TTL of MaxTTL is granted, and the hold lasts that long.",
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", driver.MaxTTL)
			rec := r.first.expectHeld("name")
			if rec.Remaining > driver.MaxTTL+r.guarantees.Grain || rec.Remaining < 0 || rec.Remaining > 0 && rec.Remaining < driver.MaxTTL-long {
				r.Errorf("of a TTL of %v remain %v", driver.MaxTTL, rec.Remaining)
			}
			h.expectRenewed(driver.MaxTTL)
		},
	},
	{
		name:     "store-clock",
		claim:    "Time passes in the store's clock: a process with a wrong clock ends holds neither early nor late.",
		requires: skew,
		run: func(r *caseRun) {
			for _, off := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
				skewed := r.newClient(r.backing.OpenSkewed(r, off))
				name := off.String()
				h := r.first.acquireFree(name, long)
				skewed.expectHeld(name)
				h.releaseHeld()
				h = skewed.acquireFree(name, long)
				r.first.expectHeld(name)
				h.releaseHeld()
				h = skewed.acquireFree(name, short)
				r.first.eventuallyGranted(name, h.answered.Add(short)).releaseHeld()
			}
		},
	},
}
