package drivertest

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// timeCases are about the ends of holds.
var timeCases = []testCase{
	{"ttl", 0, "A hold lasts its whole TTL, to the millisecond, and ends then.", func(r *caseRun) {
		other := r.other()
		for _, ttl := range []time.Duration{driver.MinTTL, 37 * time.Millisecond, 250 * time.Millisecond} {
			h := r.first.hold("name", ttl)
			other.takenFor(other.request("name", long), h.sent, ttl).end()
			h = r.first.hold("name", ttl)
			other.eventually("name", h.answered.Add(ttl)).end()
		}
	}},
	{"longest", 0, "A hold lasts for a TTL of MaxTTL, at its making and at its renewal.", func(r *caseRun) {
		h := r.first.hold("name", driver.MaxTTL)
		r.first.expectTaken("name")
		h.expectRenewed(driver.Held, driver.MaxTTL)
		if !r.features.has(records) {
			return
		}
		if left := r.first.lookup("name")[0].Remaining; left > driver.MaxTTL+r.guarantees.Grain || left < driver.MaxTTL-long {
			r.Errorf("of a TTL of %v remain %v", driver.MaxTTL, left)
		}
	}},
	{"prolonged", 0, "A renewed hold lasts until the TTL of its longest renewal is over: no renewal shortens it.", func(r *caseRun) {
		h := r.first.hold("name", r.medium)
		sent := time.Now()
		h.expectRenewed(driver.Held, r.medium+short)
		for _, shorter := range []time.Duration{short, driver.MinTTL} {
			h.expectRenewed(driver.Held, shorter)
		}
		r.other().takenFor(r.first.request("name", long), sent, r.medium+short)
		h.expectGone()
	}},
	{"never-revived", 0, "An expired hold cannot be renewed, even if nobody has taken the name, and the name stays free.", func(r *caseRun) {
		h := r.first.expired("name")
		h.expectGone()
		h.expectGone()
		if r.features.has(lookup) {
			r.expectRecords("name")
		}
		r.first.expectFree("name")
	}},
	{"store-clock", skew, "Time passes in the store's clock: a process with a wrong clock ends holds neither early nor late.", func(r *caseRun) {
		for _, off := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
			skewed, name := r.adopt(r.backing.OpenSkewed(r, off)), off.String()
			h := r.first.hold(name, long)
			skewed.expectTaken(name)
			h.end()
			h = skewed.hold(name, long)
			r.first.expectTaken(name)
			h.expectRenewed(driver.Held, long)
			h.end()
			h = skewed.hold(name, short)
			r.first.eventually(name, h.answered.Add(short)).end()
		}
	}},
}
