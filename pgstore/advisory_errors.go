package pgstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// errNoAnswer is the fault of a server whose answer is not understood.
var errNoAnswer = errors.New("the server's answer is not understood")

// quoteLiteral makes a literal of SQL.
func quoteLiteral(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// fault wraps the error of a statement. That a key was not taken is certain of
// every error that the server has answered: the store has unlocked it since.
func (s *AdvisoryStore) fault(err error) error {
	state := sqlState(err)
	if err == nil || errors.Is(err, errSessionLost) {
		return err
	}
	if state == "22003" || state == "2200H" {
		return fmt.Errorf("%w: no token above the last one is left", driver.ErrInvalid)
	}
	if advice := s.advice(state); advice != "" {
		err = fmt.Errorf("%w: %s", err, advice)
	}
	if state != "" {
		return notApplied{err}
	}
	return err
}

// advice says what to do about an error.
func (s *AdvisoryStore) advice(state string) string {
	switch state {
	case "42P01":
		return fmt.Sprintf("the sequence of tokens %s is not there: AdvisoryStore.Migrate creates it", s.options.TokenSequence)
	case "42501":
		return "the user needs USAGE, SELECT and UPDATE on the sequence of tokens, or may not do what was asked"
	case outOfRoom:
		return "the server's lock table is full: hold fewer locks, or raise max_locks_per_transaction"
	case "53300":
		return "the server has no connection left: advisory locks need one of their own for each process"
	case "57014":
		return "somebody has cancelled the statement"
	case "3D000":
		return "create the database, or name another"
	}
	return ""
}
