package driver

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Query reads the parameters of a store's URL, each by its type, and in the
// end refuses those that nobody asked for: a misspelt parameter is an error and
// not a silent default. The error messages name parameters, never values, since
// a value may be a secret.
type Query struct {
	left url.Values
	err  error
}

// NewQuery returns a Query over the parameters of u.
func NewQuery(u *url.URL) *Query {
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		err = fmt.Errorf("%w: malformed parameters", ErrInvalid)
	}
	return &Query{left: values, err: err}
}

// String returns the parameter, or def if it is absent.
func (q *Query) String(name, def string) string {
	values, ok := q.left[name]
	if !ok {
		return def
	}
	delete(q.left, name)
	if len(values) > 1 {
		q.fail("parameter %q is given %d times", name, len(values))
	}
	return values[0]
}

// Strings returns every value of the parameter, in the order of the URL, nil if
// it is absent.
func (q *Query) Strings(name string) []string {
	values := q.left[name]
	delete(q.left, name)
	return values
}

// Bool returns the parameter, or def if it is absent.
func (q *Query) Bool(name string, def bool) bool {
	return parse(q, name, def, "true or false", strconv.ParseBool)
}

// Int returns the parameter, or def if it is absent.
func (q *Query) Int(name string, def int) int {
	return parse(q, name, def, "a whole number", strconv.Atoi)
}

// Duration returns the parameter, or def if it is absent.
func (q *Query) Duration(name string, def time.Duration) time.Duration {
	return parse(q, name, def, `a duration such as "30s"`, time.ParseDuration)
}

// Err returns the first parameter that could not be read, or an error that
// names those that nobody asked for.
func (q *Query) Err() error {
	if q.err == nil && len(q.left) > 0 {
		names := slices.Sorted(maps.Keys(q.left))
		q.fail("unknown parameter %s", strings.Join(names, ", "))
	}
	return q.err
}

func (q *Query) fail(format string, args ...any) {
	if q.err == nil {
		q.err = fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
	}
}

func parse[T any](q *Query, name string, def T, want string, read func(string) (T, error)) T {
	text := q.String(name, "")
	if text == "" {
		return def
	}
	value, err := read(text)
	if err != nil {
		q.fail("parameter %q is not %s", name, want)
		return def
	}
	return value
}
