package drivertest

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var expiryCases = []testCase{
	{
		name:  "not-early",
		claim: "A hold lasts its whole TTL, to the millisecond.",
		run: func(r *run) {
			other := r.other()
			for _, ttl := range []time.Duration{driver.MinTTL, 37 * time.Millisecond, 250 * time.Millisecond} {
				h := r.first.grant("name", ttl)
				other.outlast("name", h.sent, ttl).end()
			}
		},
	},
	{
		name:  "not-late",
		claim: "A hold that is not renewed ends when its TTL has run out.",
		run: func(r *run) {
			other := r.other()
			for _, ttl := range []time.Duration{driver.MinTTL, 37 * time.Millisecond, 250 * time.Millisecond} {
				h := r.first.grant("name", ttl)
				other.succeed("name", h.answered.Add(ttl)).end()
			}
		},
	},
	{
		name:  "longest",
		claim: "A TTL of MaxTTL is granted and kept to.",
		run: func(r *run) {
			h := r.first.grant("name", driver.MaxTTL)
			rec := r.first.busy("name")
			if rec.Remaining > driver.MaxTTL || rec.Remaining < 0 || rec.Remaining > 0 && rec.Remaining < driver.MaxTTL-long {
				r.Errorf("of a TTL of %v remain %v", driver.MaxTTL, rec.Remaining)
			}
			if got := h.renew(driver.MaxTTL); got != driver.Renewed {
				r.Errorf("Renew with MaxTTL is answered %d, want Renewed", got)
			}
		},
	},
	{
		name:  "each-its-own",
		claim: "Every hold has a TTL of its own: one that runs out takes no other with it.",
		run: func(r *run) {
			h := r.first.grant("a", long)
			r.first.lapse("b")
			r.first.free("b")
			h.intact()
		},
	},
	{
		name:  "no-memory-of-the-last",
		claim: "A new hold lasts its own TTL, whatever was left of the hold before it.",
		run: func(r *run) {
			r.first.grant("name", medium).end()
			h := r.first.grant("name", short)
			r.first.succeed("name", h.answered.Add(short)).end()
			r.first.grant("name", short).end()
			r.first.grant("name", long)
			time.Sleep(short + 2*precision)
			r.first.busy("name")
		},
	},
	{
		name:  "store-clock",
		claim: "Time passes in the store's clock: a process whose own clock is wrong neither ends holds early nor late.",
		needs: skew,
		run: func(r *run) {
			for _, off := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
				skewed := r.adopt(r.backing.OpenSkewed(r, off))
				name := off.String()
				h := r.first.grant(name, long)
				skewed.busy(name)
				h.end()
				h = skewed.grant(name, long)
				r.first.busy(name)
				h.end()
				h = skewed.grant(name, short)
				r.first.succeed(name, h.answered.Add(short)).end()
			}
		},
	},
}
