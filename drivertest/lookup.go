package drivertest

import (
	"maps"
	"reflect"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var lookupCases = []testCase{
	{
		name:  "free-name",
		claim: "Lookup of a free name reports nothing.",
		needs: lookup,
		run: func(r *run) {
			r.looksFree("name")
			r.first.grant("name", long).end()
			r.looksFree("name")
		},
	},
	{
		name:  "held-name",
		claim: "Lookup reports the hold of a name, through whichever store.",
		needs: lookup,
		run: func(r *run) {
			req := r.first.request("name", long)
			req.Holder = "host/42/é"
			h := r.first.take(req)
			for _, c := range []*client{r.first, r.other()} {
				rec, found := c.lookup("name")
				if !found {
					r.Fatal("Lookup of a held name reports nothing")
				}
				r.describes("Lookup", rec, h, false)
			}
		},
	},
	{
		name:  "times",
		claim: "A record's times are those of the hold: Since before Until, and its TTL apart or little more.",
		needs: lookup,
		run: func(r *run) {
			h := r.first.grant("name", long)
			rec, _ := r.first.lookup("name")
			if rec.Since.IsZero() || rec.Until.IsZero() {
				return // The store does not know.
			}
			if lasts := rec.Until.Sub(rec.Since); lasts <= 0 || lasts > h.ttl+min(r.slack(), time.Second) {
				r.Errorf("by its record a hold with a TTL of %v lasts %v", h.ttl, lasts)
			}
		},
	},
	{
		name:  "after-expiry",
		claim: "Lookup of a name whose hold has run out reports nothing.",
		needs: lookup,
		run: func(r *run) {
			r.first.lapse("name")
			r.looksFree("name")
		},
	},
	{
		name:  "after-renewal",
		claim: "Lookup gives the time that is left after the last renewal.",
		needs: lookup,
		run: func(r *run) {
			h := r.first.grant("name", medium)
			h.renew(long)
			if rec, _ := r.first.lookup("name"); rec.Remaining <= medium || rec.Remaining > long {
				r.Errorf("of a renewal for %v Lookup gives %v as remaining", long, rec.Remaining)
			}
		},
	},
	{
		name:  "secret",
		claim: "Lookup never shows the owner.",
		needs: lookup,
		run: func(r *run) {
			r.first.grant("name", long)
			rec, _ := r.first.lookup("name")
			r.hides("Lookup", rec)
		},
	},
	{
		name:  "harmless",
		claim: "Lookup neither prolongs a hold nor ends it.",
		needs: lookup,
		run: func(r *run) {
			h := r.first.grant("name", medium)
			r.first.lookup("name")
			r.first.busy("name")
			r.first.lookup("name")
			r.first.succeed("name", h.answered.Add(medium))
		},
	},
}

func (r *run) looksFree(name string) {
	r.Helper()
	if rec, found := r.first.lookup(name); found || !reflect.DeepEqual(rec, driver.Record{}) {
		r.Errorf("Lookup of the free name %q gives %+v, %v, want a zero record and false", name, rec, found)
	}
}

// describes checks a record of a hold. Where the store may not know everything,
// the fields that it does not know are zero.
func (r *run) describes(what string, rec driver.Record, h *hold, partial bool) {
	r.Helper()
	wrong := func(field string, got, want any) {
		r.Helper()
		if !partial || !reflect.ValueOf(got).IsZero() {
			r.Errorf("%s gives the %s %v, want %v", what, field, got, want)
		}
	}
	if rec.Name != h.name {
		wrong("name", rec.Name, h.name)
	}
	if rec.Holder != h.holder {
		wrong("holder", rec.Holder, h.holder)
	}
	if rec.Token != h.token {
		wrong("token", rec.Token, h.token)
	}
	if rec.Remaining <= 0 || rec.Remaining > h.ttl {
		wrong("time remaining", rec.Remaining, h.ttl)
	}
	if rec.Kept {
		wrong("mark", "kept", "none")
	}
	if r.guarantees.Metadata && !maps.Equal(rec.Metadata, h.metadata) && !(partial && rec.Metadata == nil) {
		wrong("metadata", rec.Metadata, h.metadata)
	}
}
