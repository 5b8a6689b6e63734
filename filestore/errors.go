package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/holdfast-go/holdfast/driver"
)

// wrapErr adds to an error what was done with which file, and advice. It returns nil for nil, and
// an error that already says what is wrong.
func wrapErr(verb, path string, err error) error {
	if err == nil || driver.Permanent(err) {
		return err
	}
	var inner *fs.PathError
	if errors.As(err, &inner) {
		err = inner.Err
	}
	advice := ""
	switch {
	case errors.Is(err, fs.ErrPermission):
		advice = ": all who share these locks must be allowed to read and write the folder and its files"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		advice = ": free some space there, or raise the limit"
	}
	return fmt.Errorf("cannot %s %s: %w%s", verb, path, err, advice)
}

// notApplied is wrapErr for a request on a file that has changed nothing.
func (f *folder) notApplied(verb, file string, err error) error {
	return driver.NotApplied(wrapErr(verb, f.path(file), err))
}

// corruptErr returns the error for a file with contents that the store has not written.
func corruptErr(path, why, advice string) error {
	return fmt.Errorf("%w: %s: %s; %s", driver.ErrCorrupt, path, why, advice)
}
