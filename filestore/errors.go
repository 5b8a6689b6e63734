package filestore

import (
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

// notApplied returns the error of a request that has changed nothing: what was done with which
// file. An error that says what is wrong stays as it is.
func notApplied(verb, path string, err error) error {
	if driver.Permanent(err) {
		return err
	}
	return driver.NotApplied(fmt.Errorf("cannot %s %s: %w", verb, path, err))
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
