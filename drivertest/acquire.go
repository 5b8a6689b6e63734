package drivertest

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var acquireCases = []testCase{
	{
		name:  "free-name",
		claim: "An Acquire of a free name is granted.",
		run:   func(r *run) { r.first.grant("name", long) },
	},
	{
		name:  "held-name",
		claim: "An Acquire of a name that another owner holds is refused, as a result and not as an error.",
		run: func(r *run) {
			r.first.grant("name", long)
			ctx, cancel := r.bound()
			defer cancel()
			res, err := r.first.Acquire(ctx, r.first.request("name", long))
			if err != nil {
				r.Errorf("a held name is reported as an error: %v", err)
			} else if res.Granted {
				r.Error("a held name is granted to another owner")
			} else if res.Token != 0 {
				r.Errorf("a refusal comes with the token %d", res.Token)
			}
		},
	},
	{
		name:  "two-processes",
		claim: "A hold taken through one store is in the way of every other store over the same locks.",
		needs: processes,
		run: func(r *run) {
			other := r.other()
			h := r.first.grant("name", long)
			other.busy("name")
			h.end()
			h = other.grant("name", long)
			r.first.busy("name")
			h.end()
			r.first.free("name")
		},
	},
	{
		name:  "refusal-remaining",
		claim: "A refusal says how long the hold in the way will last, as every store can that does Lookup; it is never more than its TTL.",
		needs: lookup,
		run: func(r *run) {
			for _, ttl := range []time.Duration{long, medium, time.Minute + 345*time.Millisecond} {
				name := ttl.String()
				r.first.grant(name, ttl)
				held := r.first.busy(name)
				if held.Remaining <= 0 || held.Remaining > ttl {
					r.Errorf("of a TTL of %v a refusal gives %v as remaining", ttl, held.Remaining)
				}
			}
		},
	},
	{
		name:  "refusal-record",
		claim: "What a refusal says about the hold in the way is true.",
		run: func(r *run) {
			req := r.first.request("name", long)
			req.Metadata = map[string]string{"job": "42"}
			h := r.first.take(req)
			r.describes("a refusal", r.other().busy("name"), h, true)
		},
	},
	{
		name:  "refusal-secret",
		claim: "A refusal never shows the owner of the hold.",
		run: func(r *run) {
			r.first.grant("name", long)
			r.hides("a refusal", r.first.busy("name"), r.other().busy("name"))
		},
	},
	{
		name:  "refusal-harmless",
		claim: "Refused attempts leave the hold as it is: its owner renews and releases it as if they had not been.",
		run: func(r *run) {
			h := r.first.grant("name", long)
			for range 20 {
				r.other().busy("name")
			}
			if got := h.renew(long); got != driver.Renewed {
				r.Errorf("after refused attempts the owner's Renew is answered %d, want Renewed", got)
			}
			if !h.release() {
				r.Error("after refused attempts the owner's Release reports no hold")
			}
			r.first.free("name")
		},
	},
	{
		name:  "refusal-does-not-prolong",
		claim: "Refused attempts do not prolong the hold in the way, whatever TTL they ask for.",
		run: func(r *run) {
			h := r.first.grant("name", medium)
			r.other().busy("name") // with a long TTL
			r.other().succeed("name", h.answered.Add(medium))
		},
	},
	{
		name:  "names-apart",
		claim: "A hold of one name is not in the way of another name.",
		run: func(r *run) {
			a := r.first.grant("a", long)
			b := r.first.grant("b", long)
			a.end()
			r.first.busy("b")
			b.end()
		},
	},
	{
		name:  "repetition",
		claim: "An Acquire repeated by the owner of the hold is granted again, with the same token.",
		run: func(r *run) {
			h := r.first.grant("name", long)
			for range 3 {
				if again := h.again(long); again.token != h.token {
					r.Errorf("a repetition is granted the token %d, want %d as before", again.token, h.token)
				}
			}
			r.first.busy("name")
		},
	},
	{
		name:  "repetition-prolongs",
		claim: "An Acquire repeated by the owner sees to it that the hold lasts until TTL from now.",
		run: func(r *run) {
			h := r.first.grant("name", medium)
			h.again(long)
			h.runOut()
			r.first.busy("name")
		},
	},
	{
		name:  "repetition-never-shortens",
		claim: "An Acquire repeated by the owner with a shorter TTL does not shorten the hold.",
		run: func(r *run) {
			h := r.first.grant("name", long)
			h.again(medium).runOut()
			r.first.busy("name")
		},
	},
	{
		name:  "repetition-after-release",
		claim: "An Acquire by the owner of a hold that was released is a new grant.",
		run: func(r *run) {
			h := r.first.grant("name", long)
			h.end()
			again := h.again(long)
			r.higher(h, again)
			again.intact()
		},
	},
	{
		name:  "repetition-after-expiry",
		claim: "An Acquire by the owner of a hold that has run out is a new grant.",
		run: func(r *run) {
			h := r.first.lapse("name")
			again := h.again(long)
			r.higher(h, again)
			again.intact()
		},
	},
	{
		name:  "owner-compared-whole",
		claim: "An Acquire is a repetition only if its owner is the same, byte for byte.",
		run: func(r *run) {
			h := r.first.grant("name", long)
			for what, owner := range imposters(h.owner) {
				req := r.first.request("name", long)
				req.Owner = owner
				if r.first.acquire(req).Granted {
					r.Errorf("a held name is granted to %s", what)
				}
			}
		},
	},
	{
		name:  "no-owner",
		claim: "An Acquire without an owner never takes part in somebody's hold; it may be refused as invalid.",
		run: func(r *run) {
			r.first.grant("name", long)
			req := r.first.request("name", long)
			req.Owner = ""
			ctx, cancel := r.bound()
			defer cancel()
			res, err := r.first.Acquire(ctx, req)
			if err != nil && !errors.Is(err, driver.ErrInvalid) {
				r.Errorf("Acquire without an owner: %v, want a refusal or ErrInvalid", err)
			}
			if res.Granted {
				r.Error("a held name is granted to nobody")
			}
		},
	},
	{
		name:  "request-unchanged",
		claim: "A store does not change the metadata that it was handed.",
		run: func(r *run) {
			req := r.first.request("name", long)
			req.Metadata = map[string]string{"job": "42"}
			r.first.take(req)
			if len(req.Metadata) != 1 || req.Metadata["job"] != "42" {
				r.Errorf("the metadata of the request has become %v", req.Metadata)
			}
		},
	},
}

// higher checks that the token of a later grant is above that of an earlier.
func (r *run) higher(earlier, later *hold) {
	r.Helper()
	if r.guarantees.Fencing && later.token <= earlier.token {
		r.Errorf("a later grant of %q has the token %d, not above %d", later.name, later.token, earlier.token)
	}
}
