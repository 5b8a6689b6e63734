package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// A lock that several hold is shown with how much of it is in use, and with all of its holds.
func TestSeveralHoldsAreShown(t *testing.T) {
	limited := holdfast.Record{Name: "slots", Holder: "a", Token: 5, Limit: 10, Weight: 2, Waiting: 5, Others: []holdfast.Record{
		{Name: "slots", Holder: "b", Token: 6, Limit: 10, Weight: 3, Remaining: time.Minute},
		{Name: "slots", Token: 7, Limit: 10, Weight: 1, Kept: true, Remaining: time.Second},
		{Name: "slots", Holder: "c", Token: 8, Limit: driver.Shared},
	}}
	readers := holdfast.Record{Name: "config", Holder: "a", Token: 1, Limit: driver.Shared, Others: []holdfast.Record{
		{Name: "config", Holder: "b", Token: 2, Limit: driver.Shared},
	}}
	locks := []holdfast.Record{readers, {Name: "plain", Holder: "h"}, limited}
	want := []string{
		"NAME    HOLDER       TOKEN  AGE  LEFT       WAITING",
		"config  2 shared: a  1      -    no expiry",
		"plain   h            -      -    no expiry",
		"slots   6 of 10: a   5      -    no expiry  5",
	}
	if got := tableLines(locks, unlimitedWidth); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	shown := string(recordFields(limited))
	for _, line := range []string{
		"in use   6 of 10\n", "waiting  5\n", "weight   2\n", "and      b, token 6, weight 3, - ago, left 1m00s unless renewed\n", "and      (kept), token 7, - ago, left 1s\n",
	} {
		if !strings.Contains(shown, line) {
			t.Errorf("%q lacks %q", shown, line)
		}
	}
	view := newLockView(limited)
	if view.Limit != 10 || view.Weight != 2 || len(view.Others) != 3 || view.Others[2].Limit != 0 || !view.Others[2].Shared {
		t.Errorf("JSON: %+v", view)
	}
}

// A watch reports each hold of a lock that several hold.
func TestChangesOfSeveralHolds(t *testing.T) {
	hold := func(token int64) holdfast.Record {
		return holdfast.Record{Name: "x", Token: token, Limit: driver.Shared}
	}
	several := func(tokens ...int64) *holdfast.Record {
		rec := hold(tokens[0])
		for _, token := range tokens[1:] {
			rec.Others = append(rec.Others, hold(token))
		}
		return &rec
	}
	kept := several(1, 2)
	kept.Others[0].Kept = true
	for name, test := range map[string]struct {
		before, after *holdfast.Record
		want          string
	}{
		"the first":   {nil, several(1), "held 1 "},
		"one more":    {several(1), several(1, 2), "held 2 "},
		"the same":    {several(1, 2), several(1, 2), ""},
		"one less":    {several(1, 2), several(2), "freed 1 "},
		"one kept":    {several(1, 2), kept, "kept 2 "},
		"replaced":    {several(1, 2), several(2, 3), "freed 1 held 3 "},
		"then plain":  {several(1), &holdfast.Record{Name: "x", Token: 4}, "freed 1 held 4 "},
		"after plain": {&holdfast.Record{Name: "x", Token: 4}, several(5, 6), "freed 4 held 5 held 6 "},
		"the last":    {several(1, 2), nil, "freed 1 freed 2 "},
	} {
		got := ""
		for _, e := range eventsBetween(snapshotOf(test.before), snapshotOf(test.after), time.Now()) {
			got += e.Event + " " + string(rune('0'+e.Token)) + " "
			if e.Others != nil || e.Event == eventFreed && e.State != "" {
				t.Errorf("%s: %+v", name, e)
			}
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
