package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"syscall"

	"github.com/holdfast-go/holdfast/driver"
)

// A fileError is the error of an operation on a file: the operation, the path, the cause, and
// advice.
type fileError struct {
	verb  string
	path  string
	cause error
}

// wrapErr returns the fileError for err. It returns err if that already names what is wrong, or
// nil.
func wrapErr(verb, path string, err error) error {
	var known *fileError
	if err == nil || errors.As(err, &known) || driver.Permanent(err) {
		return err
	}
	var inner *fs.PathError
	if errors.As(err, &inner) {
		err = inner.Err
	}
	return &fileError{verb: verb, path: path, cause: err}
}

// notApplied is wrapErr for a request that has changed nothing.
func notApplied(verb, path string, err error) error {
	return driver.NotApplied(wrapErr(verb, path, err))
}

func (e *fileError) Unwrap() error { return e.cause }

func (e *fileError) Error() string {
	text := fmt.Sprintf("cannot %s %s: %v", e.verb, shownPath(e.path), e.cause)
	if advice := e.advice(); advice != "" {
		text += ": " + advice
	}
	return text
}

func (e *fileError) advice() string {
	switch {
	case errors.Is(e.cause, fs.ErrPermission):
		return "all who share these locks must be allowed to read and write the folder and its files"
	case errors.Is(e.cause, syscall.EROFS):
		return "choose a folder that can be written"
	case errors.Is(e.cause, syscall.ENOSPC), errors.Is(e.cause, syscall.EDQUOT), errors.Is(e.cause, syscall.EFBIG):
		return "free some space there, or raise the limit"
	case errors.Is(e.cause, syscall.EMFILE), errors.Is(e.cause, syscall.ENFILE):
		return "raise the limit of open files"
	}
	return ""
}

// corruptErr returns the error for a file with contents that the store has not written.
func corruptErr(path, why, advice string) error {
	return fmt.Errorf("%w: %s: %s; %s", driver.ErrCorrupt, shownPath(path), why, advice)
}

// shownPath returns a path for an error. A path with control characters, which another user could
// have made, is quoted.
func shownPath(path string) string {
	if printable(path) != path {
		return strconv.QuoteToGraphic(path)
	}
	return path
}
