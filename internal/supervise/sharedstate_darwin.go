package supervise

import (
	"os"

	"golang.org/x/sys/unix"
)

// memoryFile returns a file that has been removed, so that only its descriptor is left.
func memoryFile() (int, error) {
	f, err := os.CreateTemp("", "holdfast-*")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return 0, err
	}
	return unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
}
