package lockview

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

func TestChanges(t *testing.T) {
	base := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	held := func(token int64) *holdfast.Record { return &holdfast.Record{Name: "x", Token: token} }
	kept := func(token int64) *holdfast.Record { return &holdfast.Record{Name: "x", Token: token, Kept: true} }
	foreign := func(holder string, second int) *holdfast.Record {
		return &holdfast.Record{Name: "x", Holder: holder, Since: base.Add(time.Duration(second) * time.Second)}
	}
	renewed := held(1)
	renewed.Remaining, renewed.Until = time.Minute, base
	for name, test := range map[string]struct {
		before, after *holdfast.Record
		want          string
	}{
		"nothing":                   {nil, nil, ""},
		"held":                      {nil, held(1), "held"},
		"the same":                  {held(1), held(1), ""},
		"renewed":                   {held(1), renewed, ""},
		"taken":                     {held(1), held(2), "taken"},
		"kept":                      {held(1), kept(1), "kept"},
		"kept at first sight":       {nil, kept(1), "kept"},
		"kept on":                   {kept(1), kept(1), ""},
		"kept, and again":           {kept(1), kept(2), "kept"},
		"held after kept":           {kept(1), held(2), "held"},
		"freed":                     {held(1), nil, "freed"},
		"freed after kept":          {kept(1), nil, "freed"},
		"no tokens, the same":       {foreign("a", 1), foreign("a", 1), ""},
		"no tokens, another":        {foreign("a", 1), foreign("b", 1), "taken"},
		"no tokens, the same again": {foreign("a", 1), foreign("a", 2), "taken"},
	} {
		got := ""
		for _, e := range EventsBetween(snapshotOf(test.before), snapshotOf(test.after), base) {
			got += e.Event
			if e.Name != "x" || !e.Time.Equal(base) {
				t.Errorf("%s: %+v", name, e)
			}
			if e.Event == EventFreed && (e.State != "" || e.RemainingMS != 0 || !e.Until.IsZero()) {
				t.Errorf("%s: a free lock has %+v", name, e)
			}
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func snapshotOf(rec *holdfast.Record) map[string]holdfast.Record {
	if rec == nil {
		return nil
	}
	return map[string]holdfast.Record{rec.Name: *rec}
}

func TestChangesAreSorted(t *testing.T) {
	before := map[string]holdfast.Record{"b": {}, "d": {}}
	after := map[string]holdfast.Record{"a": {}, "c": {}, "d": {}}
	var got []string
	for _, e := range EventsBetween(before, after, time.Now()) {
		got = append(got, e.Event)
	}
	if text := strings.Join(got, " "); text != "held freed held" {
		t.Error(text)
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
		for _, e := range EventsBetween(snapshotOf(test.before), snapshotOf(test.after), time.Now()) {
			got += e.Event + " " + string(rune('0'+e.Token)) + " "
			if e.Others != nil || e.Event == EventFreed && e.State != "" {
				t.Errorf("%s: %+v", name, e)
			}
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
