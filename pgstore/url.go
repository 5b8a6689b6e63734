package pgstore

import (
	"context"
	"net/url"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

func init() {
	driver.Register("postgres", openURL)
	driver.Register("postgresql", openURL)
}

// openURL makes a store with a pool of its own. Nothing is dialed.
func openURL(_ context.Context, u *url.URL) (driver.Store, error) {
	own, rest, err := pgclient.SplitURL(u, "schema", "listen_url")
	if err != nil {
		return nil, err
	}
	query := driver.NewQuery(own)
	opts := &Options{
		Schema: query.String("schema", ""),
		Listen: query.String("listen_url", ""),
	}
	if err := query.Err(); err != nil {
		return nil, err
	}
	pool, err := pgclient.OpenPool(rest)
	if err != nil {
		return nil, err
	}
	s := New(pool, opts)
	s.ownsPool = true
	if s.configErr != nil {
		_ = s.Close() // Nothing was done with it.
		return nil, s.configErr
	}
	return s, nil
}
