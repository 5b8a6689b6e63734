//go:build unix && !linux && !darwin

package filestore

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/holdfast-go/holdfast/driver"
)

func thisHost() (host, error) {
	return host{}, fmt.Errorf("%w: the file store does not know the boot clock of %s", driver.ErrUnsupported, runtime.GOOS)
}

// networkNameOf returns "": network file systems are not recognized here, so the caller of Open
// must know.
func networkNameOf(string) (string, error) { return "", nil }

// makePipe makes a named pipe in a folder.
func makePipe(dir *os.File, name string) error {
	return syscall.Mkfifo(filepath.Join(dir.Name(), name), 0o600)
}
