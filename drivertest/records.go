package drivertest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// lookupCases are about the records of one name.
var lookupCases = []testCase{
	{"free-name", lookup, "Lookup of a name that is free, or whose hold has expired, returns nothing.", func(r *caseRun) {
		r.expectRecords("name")
		h := r.first.hold("name", long)
		r.expectRecords("other")
		h.end()
		r.expectRecords("name")
		r.first.expired("name")
		r.expectRecords("name")
	}},
	{"held-name", lookup, "Lookup shows the hold of a name, through each store, and the time that is left after each renewal.", func(r *caseRun) {
		req := r.first.request("name", r.medium)
		req.Holder = "host/42/é"
		h := r.first.grant(req)
		r.expectRecords("name", h)
		h.TTL = long
		h.expectRenewed(driver.Held, long)
		r.expectRecords("name", h)
		if rec := r.other().lookup("name")[0]; r.features.has(records) && rec.Remaining <= r.medium {
			r.Errorf("of a TTL of %v remain %v", long, rec.Remaining)
		}
	}},
	{"several", lookup | shared, "Lookup shows all holds of a name, oldest first, and none that has ended. So does List, apart from those of others.", func(r *caseRun) {
		var holds []*entry
		for i := range 4 {
			req := limited(r.first.request("name", long), driver.Shared)
			req.Holder = fmt.Sprint("host/", i)
			if r.features.has(metadata) {
				req.Metadata = map[string]string{"i": fmt.Sprint(i)}
			}
			holds = append(holds, []*store{r.first, r.other()}[i%2].grant(req))
			r.first.reader("other", long)
		}
		r.expectRecords("name", holds...)
		holds[1].end()
		left := []*entry{holds[0], holds[2], holds[3]}
		r.expectRecords("name", left...)
		if r.features.has(list) {
			listed := r.other().list("")
			r.expectListed(listed, "name", "other")
			r.expectShown("List", listed["name"], true, left...)
		}
	}},
}

// listCases are about the records of many names.
var listCases = []testCase{
	{"held-names", list, "List yields the records of every name that is held and begins with the prefix, and of no other.", func(r *caseRun) {
		holds := map[string]*entry{}
		for _, name := range []string{"jobs/1", "jobs/2", "jobs/", "jobs", "job", "xjobs/1", "Jobs/1"} {
			holds[name] = r.first.hold(name, long)
		}
		r.first.hold("jobs/released", long).end()
		r.first.expired("jobs/expired")
		listed := r.other().list("jobs/")
		r.expectListed(listed, "jobs/", "jobs/1", "jobs/2")
		for name, records := range listed {
			r.expectShown("List", records, true, holds[name])
		}
		r.expectListed(r.first.list("jobs/1"), "jobs/1")
		r.expectListed(r.first.list("none"))
	}},
	{"literal-prefix", list, "The prefix of List is compared byte for byte: no character in it is a pattern.", func(r *caseRun) {
		signs := []string{"%", "*", "?", "[a]", "[", "]", "_", `\`, "/", ".", "^", "{a}", "(a)", "'", "$", "#", "+", "é"}
		names := []string{"aaz", "a", "abz"}
		for _, sign := range signs {
			names = append(names, "a"+sign+"z")
		}
		for _, name := range names {
			r.first.hold(name, long)
		}
		for _, sign := range signs {
			other := func(name string) bool { return !strings.HasPrefix(name, "a"+sign) }
			r.expectListed(r.first.list("a"+sign), slices.DeleteFunc(slices.Clone(names), other)...)
		}
		r.expectListed(r.first.list("%"))
		r.expectListed(r.first.list("*"))
	}},
	{"many", list, "List yields each of many names once.", func(r *caseRun) {
		var names []string
		for i := range 300 {
			names = append(names, fmt.Sprintf("many/%d", i))
			r.first.hold(names[i], long)
		}
		listed := r.first.list("many/")
		r.expectListed(listed, names...)
		for name, records := range listed {
			if len(records) != 1 {
				r.Errorf("List yields %q %d times", name, len(records))
			}
		}
	}},
	{"calls-meanwhile", list, "The store can be called during a listing, and after one that its caller ends early.", func(r *caseRun) {
		var h *entry
		for i := range 20 {
			h = r.first.hold(fmt.Sprint("name/", i), long)
		}
		for range 20 {
			ctx, cancel := r.callContext()
			for _, err := range r.first.List(ctx, "name/") {
				if err != nil {
					r.Fatalf("List: %v", err)
				}
				h.expectHeld()
				break
			}
			cancel()
		}
		r.first.expectFree("another")
	}},
}

// expectRecords checks that Lookup through another store shows these holds, which were made in this
// order.
func (r *caseRun) expectRecords(name string, holds ...*entry) {
	r.Helper()
	r.expectShown("Lookup", r.other().lookup(name), !r.features.has(records), holds...)
}

// expectShown checks that records show these holds, which were made in this order.
func (r *caseRun) expectShown(what string, shown []driver.Record, partial bool, holds ...*entry) {
	r.Helper()
	if len(shown) != len(holds) {
		r.Errorf("%s shows %d holds, want %d: %v", what, len(shown), len(holds), shown)
		return
	}
	for i, rec := range shown {
		if rec.Name != holds[i].Name {
			r.Errorf("%s shows the name %q, want %q", what, rec.Name, holds[i].Name)
		}
		if rec.Kept != holds[i].kept {
			r.Errorf("%s shows %v, and the name is kept: %v", what, rec, holds[i].kept)
		}
		r.expectRecord(what, rec, holds[i], partial)
	}
}

// expectRecord checks a record of a hold. If partial is set, the fields that the store does not
// know are zero, and the holder may be the session. A keep has less than the hold had.
func (r *caseRun) expectRecord(what string, rec driver.Record, h *entry, partial bool) {
	r.Helper()
	wrong := func(field string, got, want any) {
		r.Helper()
		if !partial || !reflect.ValueOf(got).IsZero() {
			r.Errorf("%s gives the %s %v, want %v", what, field, got, want)
		}
	}
	if rec.Name != h.Name {
		wrong("name", rec.Name, h.Name)
	}
	if rec.Token != h.token {
		wrong("token", rec.Token, h.token)
	}
	if rec.Remaining <= 0 || rec.Remaining > max(h.TTL, h.Place)+r.guarantees.Grain {
		wrong("time remaining", rec.Remaining, h.TTL)
	}
	if max(rec.Limit, 1) != max(h.Limit, 1) {
		wrong("limit", rec.Limit, h.Limit)
	}
	if h.kept && rec.Holder == "" {
		return
	}
	if (rec.Holder != h.Holder || h.kept) && !(partial && what == "Lookup") {
		wrong("holder", rec.Holder, h.Holder)
	}
	if !maps.Equal(rec.Metadata, h.Metadata) && !(partial && rec.Metadata == nil) {
		wrong("metadata", rec.Metadata, h.Metadata)
	}
}

// expectListed checks the names that List has yielded.
func (r *caseRun) expectListed(listed map[string][]driver.Record, want ...string) {
	r.Helper()
	got := slices.Sorted(maps.Keys(listed))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.Errorf("List yields %q, want %q", got, want)
	}
}
