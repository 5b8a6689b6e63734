package command

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockview"
	"github.com/holdfast-go/holdfast/internal/supervise"
)

// The exit codes of holdfast itself, by the custom of sysexits.h and of the shell where they
// have one. A command of "holdfast run" returns its own exit code.
const (
	exitNobody      = 1   // the lock is not held, or the answer to a question was no
	exitWarned      = 1   // doctor: the worst finding is a warning
	exitUnfit       = 2   // doctor: a finding is a failure
	exitUsage       = 64  // the command line, a name or a URL is wrong
	exitUnavailable = 69  // the store cannot be reached, or failed
	exitOutput      = 74  // standard output, or a file, cannot be written
	exitBusy        = 75  // another owner holds the lock
	exitConfig      = 78  // an address cannot be listened on
	exitLost        = 121 // the lock was lost, and the command was stopped
	exitUnconfirmed = 122 // the command ended, but the lock was lost before, or may not be free
	exitCannotRun   = 126 // the command cannot be executed
	exitNotFound    = 127 // there is no such command
)

// maxMessageSize is the maximum length of a message: it may contain a name of many pages.
const maxMessageSize = 500

// An exitError is the error of a subcommand that ends with a certain exit code. err is the
// message, nil for none. hint is what the user can do about it.
type exitError struct {
	code int
	err  error
	hint string
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	text := oneLine(withoutPrefix(e.err))
	if over := len(text) - maxMessageSize; over > 0 {
		text = text[:maxMessageSize/2] + "..." + text[over+maxMessageSize/2:]
	}
	if e.hint != "" {
		text += "; try: " + e.hint
	}
	// Names and holders in the text come from other users.
	return lockview.Readable(text)
}

// withoutPrefix returns the text of an error without the prefix of package holdfast, also of one
// that is wrapped. The program has the same prefix. The last part of a path may look like it.
func withoutPrefix(err error) string {
	return regexp.MustCompile(`(^|\s)holdfast: `).ReplaceAllString(err.Error(), "$1")
}

// oneLine joins the lines of a text, each of them once.
func oneLine(text string) string {
	if !strings.Contains(text, "\n") {
		return text
	}
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	text = strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": ")
	// PostgreSQL's client has the address before the error of the net package, too.
	return regexp.MustCompile(`\S+ \(\S+\): dial error: dial `).ReplaceAllString(text, "dial ")
}

func (e *exitError) Unwrap() error { return e.err }

// usageError returns an error of the command line.
func usageError(err error, hint string) *exitError { return &exitError{exitUsage, err, hint} }

// exitErrorFor gives an error that is not of the command line its exit code.
func exitErrorFor(err error) *exitError {
	var e *exitError
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, holdfast.ErrInvalid), errors.Is(err, holdfast.ErrUnsupported):
		return &exitError{exitUsage, err, ""}
	case errors.Is(err, holdfast.ErrHeld):
		return &exitError{exitBusy, err, ""}
	}
	return &exitError{exitUnavailable, err, ""}
}

// report writes the error on one line and returns the exit code. An interrupt has no message, and
// under --quiet errors of the command line alone have one.
func (c *cli) report(w io.Writer, err error) int {
	if err == nil {
		return 0
	}
	if interrupt := (*supervise.Interrupt)(nil); errors.As(err, &interrupt) {
		return interrupt.Code()
	}
	var e *exitError
	if !errors.As(err, &e) {
		e = usageError(err, "holdfast --help") // of cobra
	}
	if e.err != nil && (!c.quiet || e.code == exitUsage) {
		_, _ = fmt.Fprintf(w, "holdfast: %v\n", e)
	}
	return e.code
}

// notice writes a message on one line, unless under --quiet.
func (c *cli) notice(w io.Writer, format string, args ...any) {
	c.report(w, &exitError{err: fmt.Errorf(format, args...)})
}
