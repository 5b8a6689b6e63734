package pgclient

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
)

// serverSettings are the parameters that are passed to the server unchanged. Other settings must be
// given in options, so that a misspelled parameter is detected here.
var serverSettings = []string{
	"application_name", "client_encoding", "datestyle", "options", "search_path", "timezone",
	"statement_timeout", "lock_timeout", "idle_session_timeout", "synchronous_commit",
}

// OpenPool makes a pool of connections from a URL, and from the environment of libpq for everything
// that the URL leaves out.
func OpenPool(u *url.URL) (*pgxpool.Pool, error) {
	plain := *u
	plain.RawQuery = strings.ReplaceAll(u.RawQuery, "+", "%20") // pgx, as libpq, takes + as it is
	text := plain.String()
	if rest, short := strings.CutPrefix(text, u.Scheme+":"); short && !strings.HasPrefix(rest, "//") {
		text = u.Scheme + "://" + rest // pgx understands a URL without a host only with the slashes
	}
	config, err := pgxpool.ParseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", driver.ErrInvalid, ParseErrReason(err))
	}
	for name := range config.ConnConfig.RuntimeParams {
		if !slices.Contains(serverSettings, strings.ToLower(name)) {
			return nil, fmt.Errorf("%w: the client library of Go has no parameter %s, be it one of libpq or not (a setting of the server goes into options=-c name=value)", driver.ErrInvalid, name)
		}
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "holdfast"
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	return pgxpool.NewWithConfig(context.Background(), config)
}

const (
	connectTimeout = 10 * time.Second // if the URL has none, in place of the pool's own of two minutes
	closeTimeout   = time.Second
)

// ClosePool closes a pool. If a server does not answer, that goes on in the background.
func ClosePool(pool *pgxpool.Pool) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closeTimeout):
	}
}

// ParseErrReason returns why a URL is not understood, without the URL, which may contain a
// password.
func ParseErrReason(err error) string {
	var parse *pgconn.ParseConfigError
	if !errors.As(err, &parse) {
		return "a parameter of the pool (pool_max_conns, for instance) is not understood"
	}
	_, text, _ := strings.Cut(strings.TrimPrefix(err.Error(), "cannot parse `"), "`: ")
	text, _, _ = strings.Cut(text, " (strconv.") // which contains the value
	if text == "" || strings.Contains(text, parse.ConnString) {
		return "the URL is not understood"
	}
	return text
}

// SplitURL splits a URL into two: one with the parameters of a store, as named, and one with those
// of the client.
func SplitURL(u *url.URL, parameters ...string) (own, rest *url.URL, err error) {
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil || u.Opaque != "" || u.Fragment != "" {
		return nil, nil, fmt.Errorf("%w: want %s://user@host:port/database?parameter=value", driver.ErrInvalid, u.Scheme)
	}
	ours := url.Values{}
	for _, name := range parameters {
		if given, ok := values[name]; ok {
			ours[name] = given
			delete(values, name)
		}
	}
	client := *u
	client.RawQuery = values.Encode()
	return &url.URL{RawQuery: ours.Encode()}, &client, nil
}
