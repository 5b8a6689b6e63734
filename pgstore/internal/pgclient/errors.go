// Package pgclient has what the two stores in PostgreSQL share: pools from URLs, and the errors of
// the server.
package pgclient

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// SQLState returns the five characters by which the server classifies an error, or "" if the error
// is not from the server. The errors of every driver have a method of this name.
func SQLState(err error) string {
	var reply interface{ SQLState() string }
	if errors.As(err, &reply) {
		return reply.SQLState()
	}
	return ""
}

// IsServerNotReady reports whether a server that refuses a connection with this SQLSTATE may accept
// one later: it has none left, or is starting or stopping.
func IsServerNotReady(state string) bool { return state == "53300" || state == "57P03" }

// PreconditionErr returns why a call cannot begin, or nil if it can.
func PreconditionErr(ctx context.Context, closed bool, misuse error) error {
	switch {
	case closed:
		return driver.ErrClosed
	case misuse != nil:
		return misuse
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", driver.ErrNotApplied, ctx.Err())
	}
	return nil
}

// QuoteLiteral makes an SQL literal.
func QuoteLiteral(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
