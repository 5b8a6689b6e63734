//go:build unix

package main

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// terminalSignals tell that the terminal has another size, and that we go on after
// a suspend.
func terminalSignals() (resized, resumed <-chan os.Signal) {
	sizes, conts := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(sizes, unix.SIGWINCH)
	signal.Notify(conts, unix.SIGCONT)
	return sizes, conts
}

// understandsEscapes reports whether a terminal can move its cursor.
func understandsEscapes(*os.File) bool {
	kind := os.Getenv("TERM")
	return kind != "" && kind != "dumb"
}

// readerGone reports whether f is a pipe that nobody reads any more. Without asking,
// we would learn of it only when there is something to write.
func readerGone(f *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(f.Fd())}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}
