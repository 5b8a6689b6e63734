package advisory

import (
	"context"
	"fmt"
	"net/url"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

func init() { driver.Register("postgres+advisory", openURL) }

// openURL makes a store with a pool of its own. Nothing is dialed.
func openURL(_ context.Context, u *url.URL) (driver.Store, error) {
	own, rest, err := pgclient.SplitURL(u, "keys", "namespace", "tokens", "max_waiters")
	if err != nil {
		return nil, err
	}
	query := driver.NewQuery(own)
	keys, namespace := query.String("keys", "sha256"), query.String("namespace", "")
	opts := &Options{
		TokenSequence: query.String("tokens", ""),
		MaxWaiters:    query.Int("max_waiters", 0),
		Keys:          RawKeys,
	}
	switch {
	case query.Err() != nil:
		return nil, query.Err()
	case keys == "sha256":
		opts.Keys = SHA256Keys(namespace)
	case keys != "raw":
		return nil, fmt.Errorf("%w: parameter keys is neither sha256 nor raw", driver.ErrInvalid)
	case namespace != "":
		return nil, fmt.Errorf("%w: only the keys of sha256 have a namespace", driver.ErrInvalid)
	}
	rest.Scheme = "postgres"
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
