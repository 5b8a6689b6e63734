package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
)

func init() {
	driver.Register("postgres", openURL)
	driver.Register("postgresql", openURL)
}

// ownParameters are those of a URL that are not for the PostgreSQL client.
var ownParameters = []string{"schema", "table", "synchronous_commit", "durable_release", "require_standby", "listen"}

// settings are the parameters that go to the server as they are. Others have to
// be given in options, so that a misspelt one is found out here.
var settings = []string{
	"application_name", "client_encoding", "datestyle", "options", "search_path", "timezone",
	"statement_timeout", "lock_timeout", "idle_session_timeout",
}

// openURL makes a store with a pool of its own. Nothing is dialled.
func openURL(_ context.Context, u *url.URL) (driver.Store, error) {
	own, rest, err := divide(u)
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
	if err := opts.check(); err != nil {
		return nil, err
	}
	pool, err := openPool(rest)
	if err != nil {
		return nil, err
	}
	s := New(pool, opts)
	s.owned = true
	return s, nil
}

// divide makes two of a URL: one with the parameters of this package, and one
// with those of the client.
func divide(u *url.URL) (own, rest *url.URL, err error) {
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

// openPool makes a pool of connections to what a URL names, and the environment
// of libpq where the URL says nothing.
func openPool(u *url.URL) (*pgxpool.Pool, error) {
	text := u.String()
	if rest, short := strings.CutPrefix(text, u.Scheme+":"); short && !strings.HasPrefix(rest, "//") {
		text = u.Scheme + "://" + rest // as pgx wants it where the URL names no host
	}
	config, err := pgxpool.ParseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", driver.ErrInvalid, reason(err))
	}
	for name := range config.ConnConfig.RuntimeParams {
		if !slices.Contains(settings, strings.ToLower(name)) {
			return nil, fmt.Errorf("%w: unknown parameter %s (a setting of the server goes into options=-c name=value)", driver.ErrInvalid, name)
		}
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "holdfast"
	}
	return pgxpool.NewWithConfig(context.Background(), config)
}

// reason says why a URL is not understood, without the URL, which may have a
// password in it.
func reason(err error) string {
	var parse *pgconn.ParseConfigError
	if !errors.As(err, &parse) {
		return "a parameter of the pool (pool_max_conns, for instance) is not understood"
	}
	_, text, _ := strings.Cut(strings.TrimPrefix(err.Error(), "cannot parse `"), "`: ")
	text, _, _ = strings.Cut(text, " (strconv.") // which has the value in it
	if text == "" || strings.Contains(text, parse.ConnString) {
		return "the URL is not understood"
	}
	return text
}
