package advisory

import (
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// errSessionLost is in the errors of statements without a reply, because the session has ended.
var errSessionLost = errors.New("the session that the locks live in has ended")

// errUnknownReply is the error for a reply of the server that is not understood.
var errUnknownReply = errors.New("the server's answer is not understood")

// wrapErr wraps the error of a statement. After every error that the server has sent it is certain
// that no key was acquired: the store has unlocked it since.
func (s *Store) wrapErr(err error) error {
	state := pgclient.SQLState(err)
	if err == nil || errors.Is(err, errSessionLost) {
		return err
	}
	if state == "22003" || state == "2200H" {
		return fmt.Errorf("%w: no token above the last one is left", driver.ErrInvalid)
	}
	err = pgclient.InOneLine(err)
	if state == "HF004" {
		return fmt.Errorf("%w: %w", driver.ErrInvalid, err)
	}
	if advice := s.adviceFor(state); advice != "" {
		err = fmt.Errorf("%w: %s", err, advice)
	}
	switch {
	case pgclient.IsServerNotReady(state):
		return &driver.RetryError{Err: err}
	case state != "":
		return driver.NotApplied(err)
	}
	return err
}

// adviceFor returns what to do about an error.
func (s *Store) adviceFor(state string) string {
	switch state {
	case "42P01":
		return fmt.Sprintf("the sequence of tokens %s is not there: Store.Migrate creates it", s.options.TokenSequence)
	case "42501":
		return "the user needs USAGE, SELECT and UPDATE on the sequence of tokens, or may not do what was asked"
	case lockTableFull:
		return "the server's lock table is full: hold fewer locks, or raise max_locks_per_transaction"
	case "53300":
		return "the server has no connection left: advisory locks need one of their own for each process"
	case "57P03":
		return "the server is starting or stopping"
	case "57014":
		return "somebody has cancelled the statement"
	case "3D000":
		return "create the database, or name another"
	}
	return ""
}
