package filestore

import (
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

// wrapErr adds to an error what was done with which file. It returns nil for nil, and an error that
// already says what is wrong.
func wrapErr(verb, path string, err error) error {
	if err == nil || driver.Permanent(err) {
		return err
	}
	return fmt.Errorf("cannot %s %s: %w", verb, path, err)
}

// notApplied is wrapErr for a request on a file that has changed nothing.
func (f *folder) notApplied(verb, file string, err error) error {
	return driver.NotApplied(wrapErr(verb, f.path(file), err))
}

const (
	linked  = "it is no file of this store, or has another name elsewhere"
	notOurs = "it is not what this store has written"
)

// corrupt returns the error of a file that somebody else has made or written.
func (f *folder) corrupt(file, why string) error {
	return fmt.Errorf("%w: %s: %s; look at it, and delete it when nobody holds a lock in it, if the clock of this "+
		"host is right: tokens then go on from the time of day", driver.ErrCorrupt, f.path(file), why)
}
