//go:build unix && !linux && !darwin

package filestore

import (
	"fmt"
	"runtime"

	"github.com/holdfast-go/holdfast/driver"
)

func thisHost() (host, error) {
	return host{}, fmt.Errorf("%w: the file store does not know the boot clock of %s", driver.ErrUnsupported, runtime.GOOS)
}

// networkNameOf returns "": network file systems are not recognized here, so the caller of New
// must know.
func networkNameOf(string) (string, error) { return "", nil }
