package pgstore

import (
	"context"
	"fmt"
	"net/url"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

func init() {
	driver.Register("postgres", openURL)
	driver.Register("postgresql", openURL)
}

// ownParameters are those of a URL that are not for the PostgreSQL client.
var ownParameters = []string{"schema", "table", "synchronous_commit", "durable_release", "require_standby", "listen"}

// openURL makes a store with a pool of its own. Nothing is dialed.
func openURL(_ context.Context, u *url.URL) (driver.Store, error) {
	own, rest, err := splitURL(u)
	if err != nil {
		return nil, err
	}
	query := driver.NewQuery(own)
	opts := &Options{
		Schema:            query.String("schema", DefaultSchema),
		Table:             query.String("table", DefaultTable),
		SynchronousCommit: query.String("synchronous_commit", ""),
		DurableRelease:    query.Bool("durable_release", false),
		RequireStandby:    query.Bool("require_standby", false),
		NoListen:          !query.Bool("listen", true),
	}
	if err := query.Err(); err != nil {
		return nil, err
	}
	if err := opts.setDefaults(); err != nil {
		return nil, err
	}
	pool, err := pgclient.OpenPool(rest)
	if err != nil {
		return nil, err
	}
	s := New(pool, opts)
	s.ownsPool = true
	return s, nil
}

// splitURL splits a URL into two: one with the parameters of this package, and one with those of
// the client.
func splitURL(u *url.URL) (own, rest *url.URL, err error) {
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil || u.Opaque != "" || u.Fragment != "" {
		return nil, nil, fmt.Errorf("%w: want %s://user@host:port/database?parameter=value", driver.ErrInvalid, u.Scheme)
	}
	ours := url.Values{}
	for _, name := range ownParameters {
		if given, ok := values[name]; ok {
			ours[name] = given
			delete(values, name)
		}
	}
	client := *u
	client.RawQuery = values.Encode()
	return &url.URL{RawQuery: ours.Encode()}, &client, nil
}
