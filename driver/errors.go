package driver

import (
	"errors"
	"fmt"
	"time"
)

// Errors that mean the same in every store. Each implies that nothing was changed. Stores wrap them
// with details. Callers use errors.Is.
var (
	// ErrNotApplied marks an error after which the request certainly had no effect and never will
	// have one. It may be joined with any other error.
	ErrNotApplied = errors.New("nothing was changed")

	// ErrUnsupported means that this store cannot carry out the request, now or later.
	ErrUnsupported = errors.New("not supported by this store")

	// ErrInvalid means that the request as it stands cannot be carried out.
	ErrInvalid = errors.New("invalid argument")

	// ErrCorrupt means that the store's data for this name is not what the store wrote. Only a
	// person can repair it. The error contains the place to look at.
	ErrCorrupt = errors.New("corrupt record")

	// ErrClosed means that the store has been closed.
	ErrClosed = errors.New("closed")
)

// A RetryError is the reply of a server that cannot serve the request now and expects to serve it
// later: it is loading its data, is moving the name to another node, has no connection to spare, or
// grants nothing for a while after a restart. It matches [ErrNotApplied]. A waiting call of package
// holdfast tries again, for as long as its own bound allows. A single attempt does so for After up
// to 250 ms, and for a request timeout at most.
type RetryError struct {
	Err   error         // the reply of the server, never nil
	After time.Duration // until the server can serve the request; 0 if not known
}

func (e *RetryError) Error() string {
	if e.After > 0 {
		return fmt.Sprintf("%v (try again in %v)", e.Err, e.After.Round(time.Millisecond))
	}
	return e.Err.Error()
}

func (e *RetryError) Unwrap() []error { return []error{e.Err, ErrNotApplied} }

// NotApplied returns an error with the text of err that matches both err and [ErrNotApplied]. An
// err that says so already, and nil, are returned as they are.
func NotApplied(err error) error {
	if err == nil || IsNotApplied(err) {
		return err
	}
	return notAppliedError{err}
}

type notAppliedError struct{ error }

func (e notAppliedError) Unwrap() []error { return []error{e.error, ErrNotApplied} }

// IsNotApplied reports whether err means that the request had no effect.
func IsNotApplied(err error) bool {
	return errors.Is(err, ErrNotApplied) || Permanent(err)
}

// Permanent reports whether the request would fail with err again, however often it were sent.
func Permanent(err error) bool {
	return errors.Is(err, ErrUnsupported) || errors.Is(err, ErrInvalid) ||
		errors.Is(err, ErrCorrupt) || errors.Is(err, ErrClosed)
}
