package pgclient

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

// serverSettings are the parameters that are passed to the server unchanged. Others have to be
// given in options, so that a misspelled one is detected here.
var serverSettings = []string{
	"application_name", "client_encoding", "datestyle", "options", "search_path", "timezone",
	"statement_timeout", "lock_timeout", "idle_session_timeout",
}

// OpenPool makes a pool of connections from a URL, and from the environment of libpq for everything
// that the URL leaves out.
func OpenPool(u *url.URL) (*pgxpool.Pool, error) {
	plain := *u
	plain.RawQuery = strings.ReplaceAll(u.RawQuery, "+", "%20") // pgx, as libpq, takes + as it is
	text := plain.String()
	if rest, short := strings.CutPrefix(text, u.Scheme+":"); short && !strings.HasPrefix(rest, "//") {
		text = u.Scheme + "://" + rest // as pgx wants it where the URL names no host
	}
	config, err := pgxpool.ParseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", driver.ErrInvalid, parseErrReason(err))
	}
	for name := range config.ConnConfig.RuntimeParams {
		if !slices.Contains(serverSettings, strings.ToLower(name)) {
			return nil, fmt.Errorf("%w: unknown parameter %s (a setting of the server goes into options=-c name=value)", driver.ErrInvalid, name)
		}
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "holdfast"
	}
	return pgxpool.NewWithConfig(context.Background(), config)
}

// parseErrReason returns why a URL is not understood, without the URL, which may contain a
// password.
func parseErrReason(err error) string {
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
