//go:build unix && !linux && !darwin

package filestore

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/driver"
)

func thisHost() (host, error) {
	return host{}, fmt.Errorf("%w: the file store does not know the boot clock of %s", driver.ErrUnsupported, runtime.GOOS)
}

// reachFlags opens a folder in order to reach others in it.
const reachFlags = unix.O_RDONLY

// renameNoReplace renames a folder to a name that is free. It may replace an empty folder that
// another process has just made for the same purpose.
func renameNoReplace(at int, from, to string) error { return unix.Renameat(at, from, at, to) }

// networkNameOf returns "": network file systems are not recognized here, so the caller of Open
// must know.
func networkNameOf(string) (string, error) { return "", nil }

// network is networkNameOf for an open folder.
func (d *dir) network() (string, error) { return "", nil }
