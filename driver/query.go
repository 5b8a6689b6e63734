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

// A Query reads the parameters of a store's URL, each by its type. In the end it refuses parameters
// that were not read: a misspelt parameter is an error and not a silent default. The error messages
// contain the names of parameters, never values, since a value may be a secret.
type Query struct {
	unread url.Values
	err    error
}

// NewQuery returns a Query over the parameters of u.
func NewQuery(u *url.URL) *Query {
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		err = fmt.Errorf("%w: malformed parameters", ErrInvalid)
	}
	return &Query{unread: values, err: err}
}

// String returns the parameter, or def if it is absent.
func (q *Query) String(name, def string) string {
	values := append(q.Strings(name), def)
	if len(values) > 2 {
		q.setError("parameter %q is given %d times", name, len(values)-1)
	}
	return values[0]
}

// Strings returns every value of the parameter, in the order of the URL, nil if it is absent.
func (q *Query) Strings(name string) []string {
	values := q.unread[name]
	delete(q.unread, name)
	return values
}

// Bool returns the parameter, or def if it is absent.
func (q *Query) Bool(name string, def bool) bool {
	return parseParameter(q, name, def, "true or false", strconv.ParseBool)
}

// Int returns the parameter, or def if it is absent.
func (q *Query) Int(name string, def int) int {
	return parseParameter(q, name, def, "a whole number", strconv.Atoi)
}

// Duration returns the parameter, or def if it is absent.
func (q *Query) Duration(name string, def time.Duration) time.Duration {
	return parseParameter(q, name, def, `a duration such as "30s"`, time.ParseDuration)
}

// Err returns the error of the first parameter that could not be read, or else an error that names
// the parameters that were not read.
func (q *Query) Err() error {
	if q.err == nil && len(q.unread) > 0 {
		names := slices.Sorted(maps.Keys(q.unread))
		q.setError("unknown parameter %s", strings.Join(names, ", "))
	}
	return q.err
}

// setError sets the error of the Query, unless it has one already.
func (q *Query) setError(format string, args ...any) {
	if q.err == nil {
		q.err = fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
	}
}

func parseParameter[T any](q *Query, name string, def T, want string, read func(string) (T, error)) T {
	text := q.String(name, "")
	if text == "" {
		return def
	}
	value, err := read(text)
	if err != nil {
		q.setError("parameter %q is not %s", name, want)
		return def
	}
	return value
}
