package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// An unsent error is of a statement for which no connection was to be had.
type unsent struct{ error }

func (e unsent) Unwrap() error { return e.error }

// sqlState returns the five letters by which the server classifies an error,
// "" if it is not the server's. Every driver has them under this name.
func sqlState(err error) string {
	var reply interface{ SQLState() string }
	if errors.As(err, &reply) {
		return reply.SQLState()
	}
	return ""
}

// fault wraps the error of a statement. It says of every error that is certain
// to have had no effect that this is so.
func (s *Store) fault(ctx context.Context, err error) error {
	state := sqlState(err)
	if known := s.known(state, err); known != nil {
		return known
	}
	if advice := s.advice(state); advice != "" {
		err = fmt.Errorf("%w: %s", err, advice)
	}
	var never unsent
	if errors.As(err, &never) || undone(state) {
		return notApplied{err}
	}
	if ended := ctx.Err(); ended != nil && state == "" {
		return fmt.Errorf("no answer from PostgreSQL: %w", ended)
	}
	return err
}

// notApplied is an error after which nothing was changed.
type notApplied struct{ error }

func (e notApplied) Unwrap() []error { return []error{e.error, driver.ErrNotApplied} }

// undone reports whether a statement that ended with this error has certainly
// been undone: the server says so of every error but those that end the session,
// which may come between a commit and the word of it.
func undone(state string) bool {
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

// known translates an error into one of package driver.
func (s *Store) known(state string, err error) error {
	switch state {
	case "HF001":
		return fmt.Errorf("%w: no token above the last one is left", driver.ErrInvalid)
	case "HF002", "22003":
		return fmt.Errorf("%w: the column token of the row in %s is out of bounds: set it below %d, "+
			"above every token that a resource has seen", driver.ErrCorrupt, s.statement("@table@"), int64(driver.MaxToken))
	case "22001", "22P05", "22021":
		return fmt.Errorf("%w: the server cannot store the name, the owner or the holder: too long (255 characters), "+
			"or not in the encoding of the database", driver.ErrInvalid)
	case "22P02", "22P03":
		return fmt.Errorf("%w: the server cannot store the metadata as JSON", driver.ErrInvalid)
	}
	return nil
}

// advice says what to do about an error.
func (s *Store) advice(state string) string {
	switch state {
	case "42P01", "42883", "3F000", "42703":
		return s.statement("the table @table@ or its functions are not there: run \"holdfast migrate\", or Store.Migrate, with a user who may create them")
	case "42501":
		return s.statement("the user needs USAGE on the schema @schema@ and SELECT, INSERT, UPDATE and DELETE on @table@")
	case "25006":
		return "this server takes no writes, as a standby does: connect to the primary (target_session_attrs=read-write)"
	case "57014":
		return "the server has cut the statement short: statement_timeout must leave it time, or somebody has cancelled it"
	case "55P03":
		return "another transaction has locked the row for longer than lock_timeout"
	case "53300":
		return "the server has no connection left: raise max_connections, or put a pooler in front"
	case "25P02":
		return "the connection was left in a failed transaction"
	case "HF003":
		return "RequireStandby needs synchronous standbys: set synchronous_standby_names"
	}
	return ""
}

func checkOwner(owner string) error {
	if owner == "" {
		return fmt.Errorf("%w: no owner", driver.ErrInvalid)
	}
	return nil
}
