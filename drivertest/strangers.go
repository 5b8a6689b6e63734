package drivertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

// strangersCases are about records that a store has not written.
var strangersCases = []testCase{
	{"occupied", occupy, "A name that another program occupies, in any way, is not granted, and what is shown of it can be shown.", func(r *caseRun) {
		for _, name := range r.occupied() {
			ctx, cancel := r.callContext()
			defer cancel()
			res, err := r.first.Acquire(ctx, r.first.request(name, long))
			if res.Granted || err != nil && !errors.Is(err, driver.ErrCorrupt) {
				r.Errorf("Acquire of %q, which is occupied: %+v, %v, want it refused, or ErrCorrupt", name, res, err)
			}
			r.expectShowable(res.Held)
			found, err := r.first.Lookup(ctx, name)
			if r.features.has(lookup) && !errors.Is(err, driver.ErrCorrupt) && (err != nil || len(found) == 0) {
				r.Errorf("Lookup of %q, which is occupied: %v, %v, want it found, or ErrCorrupt", name, found, err)
			}
			r.expectShowable(found...)
		}
		r.first.expectFree("name")
	}},
	{"list", occupy | list, "A listing goes on after the records of another program, and yields all names that are held.", func(r *caseRun) {
		r.first.hold("before", long)
		r.occupied()
		r.first.hold("succeeding", long) // in the order of the names, too
		held := map[string]bool{}
		ctx, cancel := r.callContext()
		defer cancel()
		for rec, err := range r.first.List(ctx, "") {
			if err != nil && !errors.Is(err, driver.ErrCorrupt) {
				r.Errorf("List: %v", err)
			}
			held[rec.Name] = true
			r.expectShowable(rec)
		}
		if !held["before"] || !held["succeeding"] {
			r.Error("List leaves out what is held, beside what is occupied")
		}
	}},
}

// occupied lets the backing occupy names, one in every way that it knows.
func (r *caseRun) occupied() (names []string) {
	r.Helper()
	for way := 0; ; way++ {
		name := fmt.Sprint("occupied/", way)
		if !r.backing.Occupy(r, name, way) {
			break
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		r.Fatal("Backing.Occupy knows no way to occupy a name")
	}
	return names
}

// expectShowable checks that tools can show records: in JSON, and on a terminal.
func (r *caseRun) expectShowable(shown ...driver.Record) {
	r.Helper()
	for _, rec := range shown {
		if _, err := json.Marshal(rec); err != nil {
			r.Errorf("a record cannot be JSON: %v", err)
		}
		for _, text := range []string{rec.Name, rec.Holder} {
			if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) || len(text) > driver.MaxName {
				r.Errorf("a record has the text %q, which no client of the store may give", text)
			}
		}
		if rec.Remaining < 0 || rec.Remaining+time.Hour < 0 || rec.Token < 0 || rec.Token > driver.MaxToken {
			r.Errorf("a record is out of bounds: %+v", rec)
		}
	}
}
