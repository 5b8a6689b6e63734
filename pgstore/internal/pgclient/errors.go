// Package pgclient has what the two stores in PostgreSQL share: pools from URLs, and the errors of
// the server.
package pgclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// A lineError has the text of an error in one line.
type lineError struct {
	error
	line string
}

func (e lineError) Error() string { return e.line }
func (e lineError) Unwrap() error { return e.error }

// InOneLine gives an error of several lines a text of one line. The client library writes a line
// for each address that it tried, with and without TLS: a line that repeats another one is left
// out.
func InOneLine(err error) error {
	if err == nil {
		return nil
	}
	var lines []string
	for line := range strings.Lines(err.Error()) {
		line = strings.ReplaceAll(strings.TrimSpace(line), "\t", " ")
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	text := strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": ")
	if text == err.Error() {
		return err
	}
	return lineError{err, text}
}

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
