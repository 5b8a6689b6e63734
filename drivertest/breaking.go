package drivertest

import "reflect"

var breakCases = []testCase{
	{
		name:  "held-name",
		claim: "Break ends the hold of a name, whoever owns it, and reports what it ended.",
		needs: breaking,
		run: func(r *run) {
			h := r.first.grant("name", long)
			other := r.other()
			rec, found := other.breakHold("name")
			if !found {
				r.Error("Break of a held name reports nothing")
			}
			r.describes("Break", rec, h, true)
			other.free("name")
		},
	},
	{
		name:  "free-name",
		claim: "Break of a free name reports nothing.",
		needs: breaking,
		run: func(r *run) {
			r.breaksNothing("name")
			r.first.lapse("name")
			r.breaksNothing("name")
			r.first.grant("name", long).end()
			r.breaksNothing("name")
			r.first.free("name")
		},
	},
	{
		name:  "kept-name",
		claim: "Break frees a kept name, and reports it as kept.",
		needs: breaking | keep,
		run: func(r *run) {
			r.first.grant("name", long).keep(long)
			if rec, found := r.first.breakHold("name"); !found || !rec.Kept {
				r.Errorf("Break of a kept name reports %+v, %v", rec, found)
			}
			r.first.free("name")
		},
	},
	{
		name:  "victim",
		claim: "The owner of a broken hold learns of it by its next Renew and Release, which leave the name free.",
		needs: breaking,
		run: func(r *run) {
			h := r.first.grant("name", long)
			r.first.breakHold("name")
			h.lost()
			h.notReleased()
			r.first.free("name")
		},
	},
	{
		name:  "victim-with-successor",
		claim: "The Renew and Release of a broken hold do nothing to the successor's.",
		needs: breaking,
		run: func(r *run) {
			h := r.first.grant("name", long)
			r.first.breakHold("name")
			successor := r.other().grant("name", long)
			h.lost()
			h.notReleased()
			successor.intact()
		},
	},
	{
		name:  "one-name-only",
		claim: "Break of one name leaves the others alone.",
		needs: breaking,
		run: func(r *run) {
			a, ab := r.first.grant("a", long), r.first.grant("ab", long)
			r.first.breakHold("a")
			ab.intact()
			a.lost()
		},
	},
	{
		name:  "secret",
		claim: "Break never shows the owner.",
		needs: breaking,
		run: func(r *run) {
			r.first.grant("name", long)
			rec, _ := r.first.breakHold("name")
			r.hides("Break", rec)
		},
	},
}

func (r *run) breaksNothing(name string) {
	r.Helper()
	if rec, found := r.first.breakHold(name); found || !reflect.ValueOf(rec).IsZero() {
		r.Errorf("Break of the free name %q gives %+v, %v, want a zero record and false", name, rec, found)
	}
}
