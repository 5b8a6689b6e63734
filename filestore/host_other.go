//go:build !linux && !darwin && !windows

package filestore

import (
	"fmt"
	"runtime"

	"github.com/holdfast-go/holdfast/driver"
)

func thisHost() (host, error) {
	return host{}, fmt.Errorf("%w: the file store does not know the boot clock of %s", driver.ErrUnsupported, runtime.GOOS)
}
