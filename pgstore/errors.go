package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// lockNotAvailable is the error of a statement that has waited for a row, or for the whole table,
// for as long as lock_timeout allows.
const lockNotAvailable = "55P03"

// readOnly is the error of a server that takes no writes.
const readOnly = "25006"

// wrapErr wraps the error of a statement. It marks every error that is certain to have had no
// effect.
func (s *Store) wrapErr(ctx context.Context, err error) error {
	state := pgclient.SQLState(err)
	if known := s.translateErr(state, err); known != nil {
		return known
	}
	err = pgclient.InOneLine(err)
	switch advice := s.adviceFor(state); {
	case isMissing(state): // The first error that most people see.
		err = fmt.Errorf("%s: %w", advice, err)
	case advice != "":
		err = fmt.Errorf("%w: %s", err, advice)
	}
	var dial *pgconn.ConnectError
	isUnsent := driver.IsNotApplied(err) || errors.As(err, &dial) || pgconn.SafeToRetry(err)
	if state == lockNotAvailable { // The statement was undone. Locks on a table end.
		return &driver.RetryError{Err: err}
	}
	if isUnsent && pgclient.IsServerNotReady(state) {
		return &driver.RetryError{Err: err}
	}
	if isUnsent || wasUndone(state) {
		return driver.NotApplied(err)
	}
	if ended := ctx.Err(); ended != nil && state == "" {
		return fmt.Errorf("no answer from PostgreSQL: %w", ended)
	}
	return err
}

// wasUndone reports whether a statement that ended with this error has certainly been undone. That
// is so for every error of the server except those that end the session, which may come between a
// commit and its reply.
func wasUndone(state string) bool {
	if state == "" {
		return false
	}
	for _, class := range []string{"08", "57P", "58", "F0", "XX"} {
		if strings.HasPrefix(state, class) {
			return false
		}
	}
	return true
}

// translateErr translates an error into one of package driver.
func (s *Store) translateErr(state string, err error) error {
	switch state {
	case "HF002":
		return fmt.Errorf("%w: %w", driver.ErrInvalid, pgclient.InOneLine(err))
	case "22003", "22008":
		return fmt.Errorf("%w: a number or a time of the row in %s is out of bounds", driver.ErrCorrupt, s.sql("@.locks"))
	case "22001", "22P05", "22021":
		return fmt.Errorf("%w: the server cannot store the name, the owner or the holder, "+
			"perhaps because of the encoding of the database", driver.ErrInvalid)
	case "22P02", "22P03":
		return fmt.Errorf("%w: the server cannot store the metadata as JSON", driver.ErrInvalid)
	}
	return nil
}

// isMissing reports whether the table, a function, the schema or a column does not exist, or has
// another form.
func isMissing(state string) bool {
	switch state {
	case "42P01", "42883", "3F000", "42703", "42P10":
		return true
	}
	return false
}

// adviceFor returns what to do about an error.
func (s *Store) adviceFor(state string) string {
	if isMissing(state) {
		return s.sql("the tables and functions of the schema @ are not there, or not as they should be; " +
			"run \"holdfast migrate --store URL\", or Store.Migrate, with a user who may create them")
	}
	switch state {
	case "42501":
		return s.sql("the user needs USAGE on the schema @, SELECT, INSERT, UPDATE and DELETE on its tables, SELECT on its view, and EXECUTE on its functions")
	case "28000", "28P01":
		return "the server does not accept this user, or its password"
	case "3D000":
		return "create the database, or name another one in the URL"
	case readOnly:
		return "this server takes no writes, as a standby does: connect to the primary (target_session_attrs=read-write)"
	case "57014":
		return "the server has cut the statement short: statement_timeout must leave it time, or somebody has cancelled it"
	case lockNotAvailable:
		return "another transaction has the table or the row of the lock locked"
	case "53300":
		return "the server has no connection left: raise max_connections, or put a pooler in front"
	case "57P03":
		return "the server is starting or stopping"
	case "25P02":
		return "the connection was left in a failed transaction"
	}
	return ""
}
