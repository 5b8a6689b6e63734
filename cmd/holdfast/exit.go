package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/holdfast-go/holdfast"
)

// The exit codes of holdfast itself, by the custom of sysexits.h and of the
// shell where they have one. A command that "holdfast run" has run gives it its
// own exit code.
const (
	exitUsage       = 64  // the command line, a name or a URL is wrong
	exitUnavailable = 69  // the store cannot be reached, or failed
	exitBusy        = 75  // somebody else holds the lock
	exitLost        = 121 // the lock was lost, and the command was stopped
	exitUnconfirmed = 122 // the command ended, but the lock was lost before, or may not be free
	exitCannotRun   = 126 // the command cannot be executed
	exitNotFound    = 127 // there is no such command
)

// longestText is the greatest length of a message: what is wrong may be a name
// of many pages.
const longestText = 500

// An exit is the error of a subcommand that is to end with a certain code. err
// is what to tell, nil for nothing, and try what the user can do about it.
type exit struct {
	code int
	err  error
	try  string
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	// The prefix of package holdfast is ours, and not wanted twice.
	text := strings.ReplaceAll(e.err.Error(), "holdfast: ", "")
	// Errors that were joined come on lines of their own.
	text = strings.ReplaceAll(text, "\n", "; ")
	if over := len(text) - longestText; over > 0 {
		text = text[:longestText/2] + "..." + text[over+longestText/2:]
	}
	if e.try != "" {
		text += "; try: " + e.try
	}
	// Names and holders in it are of somebody else's making.
	return readable(text)
}

func (e *exit) Unwrap() error { return e.err }

// usage makes an error of the command line.
func usage(err error, try string) *exit { return &exit{exitUsage, err, try} }

// failure gives an error of package holdfast its exit code.
func failure(err error) *exit {
	switch {
	case errors.Is(err, holdfast.ErrInvalid), errors.Is(err, holdfast.ErrUnsupported):
		return &exit{exitUsage, err, ""}
	case errors.Is(err, holdfast.ErrHeld):
		return &exit{exitBusy, err, ""}
	}
	return &exit{exitUnavailable, err, ""}
}

// report tells on one line what went wrong, if there is something to tell, and
// returns the exit code.
func report(to io.Writer, err error) int {
	if err == nil {
		return 0
	}
	var e *exit
	if !errors.As(err, &e) {
		// What cobra finds fault with is the command line.
		e = usage(err, "holdfast help")
	}
	if e.err != nil {
		_, _ = fmt.Fprintf(to, "holdfast: %v\n", e)
	}
	return e.code
}
