//go:build unix && !linux && !darwin

package filestore

import (
	"fmt"
	"runtime"
	"syscall"

	"github.com/holdfast-go/holdfast/driver"
)

func thisHost() (host, error) {
	return host{}, fmt.Errorf("%w: the file store does not know the boot clock of %s", driver.ErrUnsupported, runtime.GOOS)
}

func (f *folder) makePipe(name string) error { return syscall.Mkfifo(f.path(name), 0o600) }

// networkNameOf returns "": network file systems are not recognized here.
func networkNameOf(string) (string, error) { return "", nil }
