package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/holdfast-go/holdfast/driver"
)

// A fileError says which file could not be dealt with, why, and what to try.
type fileError struct {
	verb  string
	path  string
	cause error
}

// fault returns the fileError for err, unless err is one already.
func fault(verb, path string, err error) error {
	var known *fileError
	if errors.As(err, &known) {
		return err
	}
	var inner *fs.PathError
	if errors.As(err, &inner) {
		err = inner.Err
	}
	return &fileError{verb: verb, path: path, cause: err}
}

func (e *fileError) Unwrap() error { return e.cause }

func (e *fileError) Error() string {
	text := fmt.Sprintf("cannot %s %s: %v", e.verb, e.path, e.cause)
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
	case errors.Is(e.cause, syscall.ELOOP):
		return "a symbolic link in the place of a file is not followed"
	}
	return ""
}

// notApplied marks an error before which nothing was changed.
func notApplied(err error) error {
	if err == nil || driver.NotApplied(err) {
		return err
	}
	return fmt.Errorf("%w (%w)", err, driver.ErrNotApplied)
}

// corrupt says that a file does not hold what the store wrote.
func corrupt(path, why, advice string) error {
	return fmt.Errorf("%w: %s: %s; %s", driver.ErrCorrupt, path, why, advice)
}
