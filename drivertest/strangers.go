package drivertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

// strangersCases are about records that a store has not written.
var strangersCases = []testCase{
	{
		name:     "acquire",
		claim:    "A name that another program occupies, in any way, is not granted; its record can be shown.",
		requires: occupy,
		run: func(r *caseRun) {
			for _, name := range r.occupyNames() {
				ctx, cancel := r.callContext()
				res, err := r.first.Acquire(ctx, r.first.newRequest(name, long))
				cancel()
				switch {
				case res.Granted:
					r.Errorf("Acquire of %q, which somebody else occupies, is granted", name)
				case err != nil && !errors.Is(err, driver.ErrCorrupt):
					r.Errorf("Acquire of %q, which somebody else occupies: %v, want it refused, or ErrCorrupt", name, err)
				case err == nil:
					r.expectShowable("Acquire", res.Held)
				}
			}
			r.first.acquireFree("name", long).releaseHeld()
		},
	},
	{
		name:     "lookup",
		claim:    "The record of a name that another program occupies can be shown: in JSON, and on a terminal.",
		requires: occupy | lookup,
		run: func(r *caseRun) {
			for _, name := range r.occupyNames() {
				ctx, cancel := r.callContext()
				rec, found, err := r.first.Lookup(ctx, name)
				cancel()
				if !errors.Is(err, driver.ErrCorrupt) && (err != nil || !found) {
					r.Errorf("Lookup of %q, which somebody else occupies: %v, %v, want it found, or ErrCorrupt", name, found, err)
				}
				r.expectShowable("Lookup", rec)
			}
		},
	},
	{
		name:     "list",
		claim:    "A listing goes on after the records of another program, and yields all names that are held.",
		requires: occupy | list,
		run: func(r *caseRun) {
			r.first.acquireFree("before", long)
			r.occupyNames()
			r.first.acquireFree("succeeding", long) // in the order of the names, too
			held := map[string]bool{}
			ctx, cancel := r.callContext()
			defer cancel()
			for rec, err := range r.first.List(ctx, "") {
				if err != nil && !errors.Is(err, driver.ErrCorrupt) {
					r.Errorf("List: %v", err)
				}
				held[rec.Name] = true
				r.expectShowable("List", rec)
			}
			if !held["before"] || !held["succeeding"] {
				r.Error("List leaves out what is held, beside what somebody else occupies")
			}
		},
	},
}

// occupyNames lets the backing occupy names, one in every way that it knows.
func (r *caseRun) occupyNames() (names []string) {
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

// expectShowable checks that tools can show a record.
func (r *caseRun) expectShowable(verb string, rec driver.Record) {
	r.Helper()
	if reflect.ValueOf(rec).IsZero() {
		return
	}
	if _, err := json.Marshal(rec); err != nil {
		r.Errorf("the record of %s cannot be JSON: %v", verb, err)
	}
	for _, text := range []string{rec.Name, rec.Holder} {
		if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
			r.Errorf("the record of %s has the text %q, which no client of the store may give", verb, text)
		}
	}
	if rec.Remaining < 0 || rec.Remaining+time.Hour < 0 || rec.Token < 0 || rec.Token > driver.MaxToken || len(rec.Holder) > driver.MaxName {
		r.Errorf("the record of %s is out of bounds: %+v", verb, rec)
	}
}
