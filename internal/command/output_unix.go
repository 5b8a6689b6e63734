//go:build unix

package command

import (
	"os"

	"golang.org/x/sys/unix"
)

// isClosed reports whether f was closed when the program started. The runtime has opened the null
// device there then, for reading and writing, which a shell does for writing only.
func isClosed(f *os.File) bool {
	opened, err := f.Stat()
	null, nullErr := os.Stat(os.DevNull)
	mode, modeErr := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	return err == nil && nullErr == nil && os.SameFile(opened, null) && modeErr == nil && mode&unix.O_ACCMODE == unix.O_RDWR
}
