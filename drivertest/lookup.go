package drivertest

import (
	"maps"
	"reflect"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var lookupCases = []testCase{
	{
		name:     "free-name",
		claim:    "Lookup of a free name reports nothing, nor one of a name with an expired hold.",
		requires: lookup,
		run: func(r *caseRun) {
			r.expectLookupFree("name")
			r.first.acquireFree("name", long).releaseHeld()
			r.expectLookupFree("name")
			r.first.expiredHold("name")
			r.expectLookupFree("name")
		},
	},
	{
		name:     "held-name",
		claim:    "Lookup reports the hold of a name, through each store.",
		requires: lookup,
		run: func(r *caseRun) {
			req := r.first.newRequest("name", long)
			req.Holder = "host/42/é"
			h := r.first.acquireGranted(req)
			for _, c := range []*client{r.first, r.otherStore()} {
				rec, found := c.lookupRecord("name")
				if !found {
					r.Fatal("Lookup of a held name reports nothing")
				}
				r.expectRecord("Lookup", rec, h, false)
			}
		},
	},
	{
		name:     "times",
		claim:    "A record's times are those of the hold: Since is before Until, by the TTL or little more.",
		requires: lookup,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			rec, _ := r.first.lookupRecord("name")
			if rec.Since.IsZero() || rec.Until.IsZero() {
				return // The store does not know.
			}
			if lasts := rec.Until.Sub(rec.Since); lasts <= 0 || lasts > h.ttl+r.guarantees.Grain+min(r.tolerance(), time.Second) {
				r.Errorf("by its record a hold with a TTL of %v lasts %v", h.ttl, lasts)
			}
		},
	},
}

// expectLookupFree checks that Lookup reports nothing.
func (r *caseRun) expectLookupFree(name string) {
	r.Helper()
	if rec, found := r.first.lookupRecord(name); found || !reflect.DeepEqual(rec, driver.Record{}) {
		r.Errorf("Lookup of the free name %q gives %+v, %v, want a zero record and false", name, rec, found)
	}
}

// expectRecord checks a record of a hold. If partial is set, the fields that the store
// does not know are zero.
func (r *caseRun) expectRecord(what string, rec driver.Record, h *hold, partial bool) {
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
	if rec.Remaining <= 0 || rec.Remaining > h.ttl+r.guarantees.Grain {
		wrong("time remaining", rec.Remaining, h.ttl)
	}
	if rec.Kept {
		wrong("mark", "kept", "none")
	}
	if r.guarantees.Metadata && !maps.Equal(rec.Metadata, h.metadata) && !(partial && rec.Metadata == nil) {
		wrong("metadata", rec.Metadata, h.metadata)
	}
}
