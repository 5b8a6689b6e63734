package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"github.com/holdfast-go/holdfast/driver"
)

// A fileError is the error of an operation on a file: the operation, the path, the cause, and
// advice.
type fileError struct {
	verb, path string
	cause      error
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
	switch {
	case errors.Is(e.cause, fs.ErrPermission):
		text += ": all who share these locks must be allowed to read and write the folder and its files"
	case errors.Is(e.cause, syscall.EROFS):
		text += ": choose a folder that can be written"
	case isFull(e.cause):
		text += ": free some space there, or raise the limit"
	case errors.Is(e.cause, syscall.EMFILE), errors.Is(e.cause, syscall.ENFILE):
		text += ": raise the limit of open files"
	}
	return text
}

// isFull reports whether an error says that there is no space.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// corruptErr returns the error for a file with contents that the store has not written.
func corruptErr(path, why, advice string) error {
	return fmt.Errorf("%w: %s: %s; %s", driver.ErrCorrupt, shownPath(path), why, advice)
}

// shownPath returns a path for an error. One with control characters is quoted.
func shownPath(path string) string {
	if strings.ContainsFunc(path, unicode.IsControl) {
		return strconv.QuoteToGraphic(path)
	}
	return path
}
