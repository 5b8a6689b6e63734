package drivertest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

var listCases = []testCase{
	{
		name:     "held-names",
		claim:    "List yields the record of every held name that begins with the prefix, and of no other.",
		requires: list,
		run: func(r *caseRun) {
			holds := map[string]*hold{}
			for _, name := range []string{"jobs/1", "jobs/2", "jobs/", "jobs", "job", "xjobs/1", "Jobs/1"} {
				holds[name] = r.first.acquireFree(name, long)
			}
			records := r.otherStore().listRecords("jobs/")
			r.expectListed(records, "jobs/", "jobs/1", "jobs/2")
			for name, rec := range records {
				r.expectRecord("List", rec, holds[name], true)
			}
			r.expectListed(r.first.listRecords("jobs/1"), "jobs/1")
			r.expectListed(r.first.listRecords("none"))
		},
	},
	{
		name:     "gone-names",
		claim:    "List yields no name that was released or has expired.",
		requires: list,
		run: func(r *caseRun) {
			r.first.acquireFree("released", long).releaseHeld()
			r.first.expiredHold("lapsed")
			r.first.acquireFree("held", long)
			r.expectListed(r.first.listRecords(""), "held")
		},
	},
	{
		name:     "kept-names",
		claim:    "List yields kept names, marked as kept, until the keep is over.",
		requires: list | keep,
		run: func(r *caseRun) {
			r.first.acquireFree("kept", long).releaseKeep(long)
			records := r.first.listRecords("")
			r.expectListed(records, "kept")
			if rec := records["kept"]; !rec.Kept || rec.Holder != "" {
				r.Errorf("List gives a kept name the record %+v", rec)
			}
		},
	},
	{
		name:     "literal-prefix",
		claim:    "The prefix of List is compared byte for byte: no character in it is a pattern.",
		requires: list,
		run: func(r *caseRun) {
			signs := []string{"%", "*", "?", "[a]", "[", "]", "_", `\`, "/", ".", "^", "{a}", "(a)", "'", "$", "#", "+", "é"}
			names := []string{"aaz", "a", "abz"}
			for _, sign := range signs {
				names = append(names, "a"+sign+"z")
			}
			for _, name := range names {
				r.first.acquireFree(name, long)
			}
			for _, sign := range signs {
				other := func(name string) bool { return !strings.HasPrefix(name, "a"+sign) }
				r.expectListed(r.first.listRecords("a"+sign), slices.DeleteFunc(slices.Clone(names), other)...)
			}
			r.expectListed(r.first.listRecords("%"))
			r.expectListed(r.first.listRecords("*"))
		},
	},
	{
		name:     "many",
		claim:    "List yields each of many names once.",
		requires: list,
		run: func(r *caseRun) {
			var names []string
			for i := range 300 {
				names = append(names, fmt.Sprintf("many/%d", i))
				r.first.acquireFree(names[i], long)
			}
			r.expectListed(r.first.listRecords("many/"), names...)
		},
	},
	{
		name:     "broken-off",
		claim:    "A listing that its caller ends early does not block other calls.",
		requires: list,
		run: func(r *caseRun) {
			for i := range 20 {
				r.first.acquireFree(fmt.Sprintf("name/%d", i), long)
			}
			for range 50 {
				ctx, cancel := r.callContext()
				for _, err := range r.first.List(ctx, "name/") {
					if err != nil {
						r.Fatalf("List: %v", err)
					}
					break
				}
				cancel()
			}
			r.first.expectFree("another")
		},
	},
	{
		name:     "calls-meanwhile",
		claim:    "The store can be called during a listing.",
		requires: list,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name/0", long)
			ctx, cancel := r.callContext()
			defer cancel()
			for _, err := range r.first.List(ctx, "name/") {
				if err != nil {
					r.Fatalf("List: %v", err)
				}
				r.first.expectHeld("name/0")
				h.renewFor(long)
			}
		},
	},
}

// expectListed checks the names that List has yielded.
func (r *caseRun) expectListed(records map[string]driver.Record, want ...string) {
	r.Helper()
	got := slices.Sorted(maps.Keys(records))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.Errorf("List yields %q, want %q", got, want)
	}
}
