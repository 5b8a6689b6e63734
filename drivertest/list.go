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
		name:  "held-names",
		claim: "List yields the record of every held name that begins with the prefix, and of no other.",
		needs: list,
		run: func(r *run) {
			holds := map[string]*hold{}
			for _, name := range []string{"jobs/1", "jobs/2", "jobs/", "jobs", "job", "xjobs/1", "Jobs/1"} {
				holds[name] = r.first.grant(name, long)
			}
			records := r.other().list("jobs/")
			r.yields(records, "jobs/", "jobs/1", "jobs/2")
			for name, rec := range records {
				r.describes("List", rec, holds[name], true)
			}
			r.yields(r.first.list("jobs/1"), "jobs/1")
			r.yields(r.first.list("none"))
		},
	},
	{
		name:  "everything",
		claim: "List of an empty prefix yields every name.",
		needs: list,
		run: func(r *run) {
			r.yields(r.first.list(""))
			r.first.grant("a", long)
			r.first.grant("b/c", long)
			r.yields(r.first.list(""), "a", "b/c")
		},
	},
	{
		name:  "gone-names",
		claim: "List yields no name that was released or whose hold has run out.",
		needs: list,
		run: func(r *run) {
			r.first.grant("released", long).end()
			r.first.lapse("lapsed")
			r.first.grant("held", long)
			r.yields(r.first.list(""), "held")
		},
	},
	{
		name:  "kept-names",
		claim: "List yields kept names, marked as such, until the keep is over.",
		needs: list | keep,
		run: func(r *run) {
			r.first.grant("kept", long).keep(long)
			records := r.first.list("")
			r.yields(records, "kept")
			if rec := records["kept"]; !rec.Kept || rec.Holder != "" {
				r.Errorf("List gives a kept name the record %+v", rec)
			}
		},
	},
	{
		name:  "literal-prefix",
		claim: "The prefix of List is compared byte for byte: no sign in it is a pattern.",
		needs: list,
		run: func(r *run) {
			signs := []string{"%", "*", "?", "[a]", "[", "]", "_", `\`, "/", ".", "^", "{a}", "(a)", "'", "$", "#", "+", "é"}
			names := []string{"aaz", "a", "abz"}
			for _, sign := range signs {
				names = append(names, "a"+sign+"z")
			}
			for _, name := range names {
				r.first.grant(name, long)
			}
			for _, sign := range signs {
				other := func(name string) bool { return !strings.HasPrefix(name, "a"+sign) }
				r.yields(r.first.list("a"+sign), slices.DeleteFunc(slices.Clone(names), other)...)
			}
			r.yields(r.first.list("%"))
			r.yields(r.first.list("*"))
		},
	},
	{
		name:  "many",
		claim: "List yields each of many names once.",
		needs: list,
		run: func(r *run) {
			var names []string
			for i := range 300 {
				names = append(names, fmt.Sprintf("many/%d", i))
				r.first.grant(names[i], long)
			}
			r.yields(r.first.list("many/"), names...)
		},
	},
	{
		name:  "broken-off",
		claim: "A listing that is broken off leaves nothing in the way of other calls.",
		needs: list,
		run: func(r *run) {
			for i := range 20 {
				r.first.grant(fmt.Sprintf("name/%d", i), long)
			}
			for range 50 {
				ctx, cancel := r.bound()
				for _, err := range r.first.List(ctx, "name/") {
					if err != nil {
						r.Fatalf("List: %v", err)
					}
					break
				}
				cancel()
			}
			r.first.free("another")
		},
	},
	{
		name:  "calls-meanwhile",
		claim: "While a listing is under way, its store can be called.",
		needs: list,
		run: func(r *run) {
			h := r.first.grant("name/0", long)
			ctx, cancel := r.bound()
			defer cancel()
			for _, err := range r.first.List(ctx, "name/") {
				if err != nil {
					r.Fatalf("List: %v", err)
				}
				r.first.busy("name/0")
				h.renew(long)
			}
		},
	},
	{
		name:  "secret",
		claim: "List never shows an owner.",
		needs: list,
		run: func(r *run) {
			r.first.grant("name", long)
			r.hides("List", r.first.list(""))
		},
	},
}

func (r *run) yields(records map[string]driver.Record, want ...string) {
	r.Helper()
	got := slices.Sorted(maps.Keys(records))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.Errorf("List yields %q, want %q", got, want)
	}
}
