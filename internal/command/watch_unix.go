//go:build unix

package command

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// terminalSignals returns channels that receive a signal when the size of the terminal has
// changed, and when the process goes on after it was suspended.
func terminalSignals() (resized, resumed <-chan os.Signal) {
	sizes, conts := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(sizes, unix.SIGWINCH)
	signal.Notify(conts, unix.SIGCONT)
	return sizes, conts
}

// supportsEscapes reports whether a terminal can move its cursor.
func supportsEscapes(*os.File) bool {
	kind := os.Getenv("TERM")
	return kind != "" && kind != "dumb"
}

// isClosed reports whether f was closed when the program started. The runtime has opened the null
// device there then, for reading and writing, which a shell does for writing only.
func isClosed(f *os.File) bool {
	opened, err := f.Stat()
	null, nullErr := os.Stat(os.DevNull)
	mode, modeErr := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	return err == nil && nullErr == nil && os.SameFile(opened, null) && modeErr == nil && mode&unix.O_ACCMODE == unix.O_RDWR
}

// readerGone reports whether f is a pipe without a reader. Without this check, the end of the
// reader would be noticed only when there is something to write.
func readerGone(f *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(f.Fd())}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}
