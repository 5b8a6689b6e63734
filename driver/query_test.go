package driver

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

func query(t *testing.T, raw string) *Query {
	t.Helper()
	return NewQuery(&url.URL{RawQuery: raw})
}

func TestQuery(t *testing.T) {
	q := query(t, "s=text&b=true&i=7&d=1m30s")
	if s, b, i, d := q.String("s", ""), q.Bool("b", false), q.Int("i", 0), q.Duration("d", 0); s != "text" || !b || i != 7 || d != 90*time.Second {
		t.Errorf("read %q, %v, %d, %v", s, b, i, d)
	}
	if s, b, i, d := q.String("x", "def"), q.Bool("x", true), q.Int("x", 3), q.Duration("x", 4); s != "def" || !b || i != 3 || d != 4 {
		t.Errorf("defaults: %q, %v, %d, %v", s, b, i, d)
	}
	if err := q.Err(); err != nil {
		t.Error(err)
	}
}

func TestQueryStrings(t *testing.T) {
	q := query(t, "n=1&m=2&n=3")
	if got := q.Strings("n"); !slices.Equal(got, []string{"1", "3"}) {
		t.Errorf("Strings: %q, want both in order", got)
	}
	if got := q.Strings("x"); got != nil {
		t.Errorf("Strings of an absent parameter: %q", got)
	}
	if err := q.Err(); err == nil || !strings.Contains(err.Error(), "unknown parameter m") {
		t.Errorf("Err: %v, want one about m", err)
	}
}

func TestQueryRefuses(t *testing.T) {
	for raw, want := range map[string]string{
		"b=secret":       `"b" is not true or false`,
		"i=secret":       `"i" is not a whole number`,
		"d=secret":       `"d" is not a duration`,
		"s=secret&s=2":   `"s" is given 2 times`,
		"s=1&zz=secret":  "unknown parameter zz",
		"%zz":            "malformed",
		"y=secret&x=1":   "unknown parameter x, y",
		"b=secret&x=two": `"b" is not`,
	} {
		q := query(t, raw)
		q.Bool("b", false)
		q.Int("i", 0)
		q.Duration("d", 0)
		q.String("s", "")
		err := q.Err()
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error shows a value: %v", raw, err)
		}
	}
}

func TestRegisterPanicsOnATakenScheme(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	open := func(context.Context, *url.URL) (Store, error) { return nil, nil }
	Register("twice", open)
	Register("twice", open)
}

func TestErrorClasses(t *testing.T) {
	for _, err := range []error{ErrUnsupported, ErrInvalid, ErrCorrupt, ErrClosed} {
		if !Permanent(err) || !IsNotApplied(err) {
			t.Errorf("%v: permanent %v, not applied %v", err, Permanent(err), IsNotApplied(err))
		}
	}
	if Permanent(ErrNotApplied) || !IsNotApplied(ErrNotApplied) {
		t.Error("ErrNotApplied is taken for permanent, or not for itself")
	}
	if other := errors.New("other"); Permanent(other) || IsNotApplied(other) {
		t.Error("an unknown error is taken for harmless")
	}
}
