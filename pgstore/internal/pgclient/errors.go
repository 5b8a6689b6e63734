package pgclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// SQLState returns the five letters by which the server classifies an error, or "" if the error is
// not from the server. Every driver has them under this name.
func SQLState(err error) string {
	var reply interface{ SQLState() string }
	if errors.As(err, &reply) {
		return reply.SQLState()
	}
	return ""
}

// IsServerNotReady reports whether a server that refused a connection for this reason expects to
// accept one later: it has none left, or is starting or stopping.
func IsServerNotReady(state string) bool { return state == "53300" || state == "57P03" }

// A lineError has the text of an error in one line.
type lineError struct {
	error
	line string
}

func (e lineError) Error() string { return e.line }
func (e lineError) Unwrap() error { return e.error }

// The form of pgx errors for an attempt to connect: the address, its host, and the reason, in which
// package net repeats the address.
var (
	dialAddress = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`dial error: dial \w+ [^ ]+: `) })
	dialLine    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(.*?)(\S+) \(([^()]*)\): (.*)$`) })
)

// missingFunction matches the server's error for a function that does not exist, which has the
// types of all its arguments.
var missingFunction = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(function [^()]*)\([^()]*\) does not exist`) })

// InOneLine gives an error that has several lines, an address twice, or the types of all arguments
// of a function, a text that people can read. The client library has a line for each address that
// it tried, with and without TLS.
func InOneLine(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	var line, last string
	short := missingFunction().ReplaceAllString(dialAddress().ReplaceAllString(text, ""), "$1 does not exist")
	for part := range strings.SplitSeq(short, "\n") {
		part = strings.ReplaceAll(strings.TrimSpace(part), "\t", " ")
		if m := dialLine().FindStringSubmatch(part); m != nil {
			address, host := m[2], m[3]
			switch {
			case address == last:
				part = m[4]
			case strings.HasPrefix(strings.Trim(address, "["), host):
				part = m[1] + address + ": " + m[4]
			}
			last = address
		}
		switch {
		case line == "" || strings.HasSuffix(line, part):
			line = cmp.Or(line, part)
		case strings.HasSuffix(line, ":"):
			line += " " + part
		default:
			line += "; " + part
		}
	}
	// With sslmode=prefer, the default, the attempt without TLS counts.
	line = strings.Replace(line, "tls error: server refused TLS connection; server error: ", "", 1)
	if line == text {
		return err
	}
	return lineError{err, line}
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

// CheckOwner returns an error for a request without an owner.
func CheckOwner(owner string) error {
	if owner == "" {
		return fmt.Errorf("%w: no owner", driver.ErrInvalid)
	}
	return nil
}
