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

const (
	// lockNotAvailable is the error of a statement that has waited for a row, or for a whole
	// table, until lock_timeout was over.
	lockNotAvailable = "55P03"

	// readOnly is the error of a server that takes no writes, and noPlaces that of a standby,
	// which refuses to read an unlogged table.
	readOnly, noPlaces = "25006", "0A000"

	notMigrated = "the tables and functions of the schema @ are not there, or not as they should be; " +
		"run \"holdfast migrate --store URL\", or Store.Migrate, with a user who may create them"
	notStored  = "the server cannot store the name, the owner or the holder, perhaps because of the encoding of the database"
	notJSON    = "the server cannot store the metadata as JSON"
	toPrimary  = "this server takes no writes, as a standby does: connect to the primary (target_session_attrs=read-write)"
	outOfRange = "a number or a time of the row in @.locks is out of bounds"
)

// advices says what an error of the server means, and what to do. The schema is @.
var advices = map[string]string{
	"42P01": notMigrated, "42883": notMigrated, "3F000": notMigrated, "42703": notMigrated, "42704": notMigrated, "42P10": notMigrated,
	"22001": notStored, "22P05": notStored, "22021": notStored, "22P02": notJSON, "22P03": notJSON,
	"22003": outOfRange, "22008": outOfRange,
	"42501":          "the user needs USAGE on the schema @, SELECT, INSERT, UPDATE and DELETE on its tables, SELECT on its view, and EXECUTE on its functions; to migrate, it must own the schema: an administrator makes one for it with CREATE SCHEMA @ AUTHORIZATION user",
	readOnly:         toPrimary,
	noPlaces:         toPrimary,
	"57014":          "the server has cut the statement short: statement_timeout must leave it time, or somebody has cancelled it",
	lockNotAvailable: "another transaction has the table or the row of the lock locked",
	"53300":          "the server has no connection left: raise max_connections, or put a pooler in front",
	"57P03":          "the server is starting or stopping",
	"42P13":          "the functions of the schema @ are those of a development version: end its programs, and drop the schema",
}

// wrapErr adds what to do about the error of a statement, and marks it if the statement has
// certainly had no effect. The server's text may quote a value that it cannot store, and is left
// out then.
func (s *Store) wrapErr(ctx context.Context, err error) error {
	state := pgclient.SQLState(err)
	advice := s.sql(advices[state])
	var dial *pgconn.ConnectError
	unsent := driver.IsNotApplied(err) || errors.As(err, &dial) || pgconn.SafeToRetry(err)
	switch advices[state] {
	case notStored, notJSON:
		return fmt.Errorf("%w: %s", driver.ErrInvalid, advice)
	case outOfRange:
		return fmt.Errorf("%w: %s", driver.ErrCorrupt, advice)
	case notMigrated: // The first error that most people see.
		err = fmt.Errorf("%s: %w", advice, err)
	case "":
	default:
		err = fmt.Errorf("%w: %s", err, advice)
	}
	switch {
	case state == "HF002", state == "42P13": // what check.sql refuses, and functions of another form
		return fmt.Errorf("%w: %w", driver.ErrInvalid, err)
	case state == lockNotAvailable, unsent && pgclient.IsServerNotReady(state): // It may succeed later.
		return &driver.RetryError{Err: err}
	case unsent || wasUndone(state):
		return driver.NotApplied(err)
	case ctx.Err() != nil && state == "":
		return fmt.Errorf("no answer from PostgreSQL: %w", ctx.Err())
	}
	return err
}

// wasUndone reports whether a statement that ended with this error has certainly been undone. Every
// error of the server means that, except those that end the session: they may come between a commit
// and its reply.
func wasUndone(state string) bool {
	for _, class := range []string{"08", "57P", "58", "F0", "XX"} {
		if strings.HasPrefix(state, class) {
			return false
		}
	}
	return state != ""
}
