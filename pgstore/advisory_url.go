package pgstore

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

func init() { driver.Register("postgres+advisory", openAdvisoryURL) }

// openAdvisoryURL makes a store with a pool of its own. Nothing is dialled.
func openAdvisoryURL(_ context.Context, u *url.URL) (driver.Store, error) {
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil || u.Opaque != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%w: want postgres+advisory://user@host:port/database?parameter=value", driver.ErrInvalid)
	}
	own := url.Values{}
	for _, name := range []string{"keys", "namespace", "tokens", "session_pooled", "max_locks", "max_conns", "listen"} {
		if given, ok := values[name]; ok {
			own[name] = given
			values.Del(name)
		}
	}
	opts, err := advisoryOptions(&url.URL{RawQuery: own.Encode()})
	if err != nil {
		return nil, err
	}
	rest := *u
	rest.Scheme, rest.RawQuery = "postgres", values.Encode()
	pool, err := openPool(&rest)
	if err != nil {
		return nil, err
	}
	s := NewAdvisory(pool, opts)
	s.owned = true
	if s.misuse != nil {
		_ = s.Close() // Nothing was done with it.
		return nil, s.misuse
	}
	return s, nil
}

func advisoryOptions(own *url.URL) (*AdvisoryOptions, error) {
	query := driver.NewQuery(own)
	keys, namespace := query.String("keys", "sha256"), query.String("namespace", "")
	opts := &AdvisoryOptions{
		TokenSequence: query.String("tokens", ""),
		SessionPooled: query.Bool("session_pooled", false),
		MaxLocks:      query.Int("max_locks", 0),
		MaxConns:      query.Int("max_conns", 0),
		NoListen:      !query.Bool("listen", true),
		Keys:          keySchemes[keys],
	}
	switch {
	case query.Err() != nil:
		return nil, query.Err()
	case keys == "sha256":
		opts.Keys = SHA256Keys(namespace)
	case opts.Keys == nil:
		return nil, fmt.Errorf("%w: parameter keys is none of sha256, %s", driver.ErrInvalid, strings.Join(slices.Sorted(maps.Keys(keySchemes)), ", "))
	case namespace != "":
		return nil, fmt.Errorf("%w: only the keys of sha256 have a namespace", driver.ErrInvalid)
	}
	return opts, nil
}
