package drivertest

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var keepCases = []testCase{
	{
		name:  "unclaimed",
		claim: "A store that does not claim Keep refuses a Release with Keep with ErrUnsupported, and the hold stays.",
		lacks: keep,
		run: func(r *run) {
			h := r.first.grant("name", long)
			ctx, cancel := r.bound()
			defer cancel()
			_, err := r.first.Release(ctx, driver.ReleaseRequest{Name: "name", Owner: h.owner, Keep: long})
			if !errors.Is(err, driver.ErrUnsupported) {
				r.Errorf("Release with Keep: %v, want ErrUnsupported", err)
			}
			h.intact()
			h.end()
		},
	},
	{
		name:  "taken",
		claim: "A kept name can be taken by nobody, not by the one who released it either.",
		needs: keep,
		run: func(r *run) {
			h := r.first.grant("name", long)
			h.keep(long)
			r.other().busy("name")
			req := r.first.request("name", long)
			req.Owner = h.owner
			r.first.refuse(req)
		},
	},
	{
		name:  "shorter-than-TTL",
		claim: "A name kept for less than was left of the TTL is free when the keep is over, and not before.",
		needs: keep,
		run: func(r *run) {
			h := r.first.grant("name", long)
			r.other().outlast("name", h.keep(250*time.Millisecond), 250*time.Millisecond)
		},
	},
	{
		name:  "longer-than-TTL",
		claim: "A name kept for longer than was left of the TTL is free when the keep is over, and not before.",
		needs: keep,
		run: func(r *run) {
			h := r.first.grant("name", medium)
			r.other().outlast("name", h.keep(medium+short), medium+short)
		},
	},
	{
		name:  "no-renewal",
		claim: "A Renew of a kept name by its former owner is answered RenewLost and does not prolong the keep.",
		needs: keep,
		run: func(r *run) {
			h := r.first.grant("name", long)
			h.keep(short)
			h.lost()
			r.first.succeed("name", time.Now().Add(short))
		},
	},
	{
		name:  "repeated",
		claim: "The same Release sent again while the name is kept reports true, and the name stays kept.",
		needs: keep,
		run: func(r *run) {
			h := r.first.grant("name", long)
			h.keep(long)
			if !h.c.releaseAs("name", h.owner, long) {
				r.Error("the same Release sent again reports no hold")
			}
			r.first.busy("name")
		},
	},
	{
		name:  "repeated-too-late",
		claim: "The same Release sent again when the keep is over reports no hold, and does nothing to a successor.",
		needs: keep,
		run: func(r *run) {
			h := r.first.grant("name", long)
			h.keep(short)
			time.Sleep(short + 2*precision)
			if h.c.releaseAs("name", h.owner, long) {
				r.Error("the same Release sent again when the keep is over reports a hold")
			}
			successor := r.first.grant("name", long)
			if h.c.releaseAs("name", h.owner, long) {
				r.Error("the same Release sent again to a successor reports a hold")
			}
			successor.intact()
		},
	},
	{
		name:  "not-the-owner",
		claim: "A Release with Keep by anyone but the owner reports no hold, and ends or keeps nothing.",
		needs: keep,
		run: func(r *run) {
			h := r.first.grant("name", long)
			for what, owner := range imposters(h.owner) {
				if r.first.releaseAs("name", owner, short) {
					r.Errorf("Release with Keep by %s reports a hold", what)
				}
			}
			time.Sleep(short + 2*precision)
			h.intact()
			if r.first.releaseAs("free", h.owner, long) {
				r.Error("Release with Keep of a free name reports a hold")
			}
			r.first.free("free")
		},
	},
	{
		name:  "not-a-stranger",
		claim: "A kept name is not freed by the Release of another owner.",
		needs: keep,
		run: func(r *run) {
			r.first.grant("name", long).keep(long)
			if r.first.releaseAs("name", r.owner(), 0) {
				r.Error("Release of a kept name by a stranger reports a hold")
			}
			r.first.busy("name")
		},
	},
	{
		name:  "after-expiry",
		claim: "A Release with Keep of a hold that has run out reports no hold, and the name stays free.",
		needs: keep,
		run: func(r *run) {
			h := r.first.lapse("name")
			if h.c.releaseAs("name", h.owner, long) {
				r.Error("Release with Keep of a hold that has run out reports a hold")
			}
			r.first.free("name")
		},
	},
	{
		name:  "refusal",
		claim: "A refusal by a kept name says how long it is kept for, at most, and does not name a holder.",
		needs: keep,
		run: func(r *run) {
			h := r.first.grant("name", long)
			h.keep(time.Minute)
			held := r.first.busy("name")
			if held.Remaining > time.Minute || held.Remaining < 0 {
				r.Errorf("of a keep of %v a refusal gives %v as remaining", time.Minute, held.Remaining)
			}
			if held.Holder != "" {
				r.Errorf("a refusal by a kept name names the holder %q", held.Holder)
			}
		},
	},
	{
		name:  "record",
		claim: "Lookup reports a kept name as kept, by nobody, for the time that is left.",
		needs: keep | lookup,
		run: func(r *run) {
			h := r.first.grant("name", long)
			h.keep(time.Minute)
			rec, found := r.first.lookup("name")
			r.hides("Lookup of a kept name", rec)
			if !found || !rec.Kept || rec.Holder != "" || rec.Name != "name" {
				r.Errorf("Lookup of a kept name gives %+v, %v", rec, found)
			}
			if rec.Remaining <= 0 || rec.Remaining > time.Minute {
				r.Errorf("of a keep of %v Lookup gives %v as remaining", time.Minute, rec.Remaining)
			}
		},
	},
	{
		name:  "record-ends",
		claim: "Lookup reports nothing when the keep is over.",
		needs: keep | lookup,
		run: func(r *run) {
			r.first.grant("name", long).keep(short)
			time.Sleep(short + 2*precision)
			if rec, found := r.first.lookup("name"); found {
				r.Errorf("Lookup gives %+v when the keep is over", rec)
			}
		},
	},
	{
		name:  "tokens-rise",
		claim: "The grant after a keep has a higher token.",
		needs: keep | fencing,
		run: func(r *run) {
			h := r.first.grant("name", long)
			h.keep(short)
			r.higher(h, r.first.succeed("name", time.Now().Add(short)))
		},
	},
}
