package command

import (
	"os"

	"golang.org/x/sys/windows"
)

// terminalSignals returns nil channels: Windows has no such signals. The screen notices a
// change of its size by itself.
func terminalSignals() (resized, resumed <-chan os.Signal) { return nil, nil }

// supportsEscapes reports whether a console can move its cursor, after enabling that.
func supportsEscapes(f *os.File) bool {
	handle := windows.Handle(f.Fd())
	var mode uint32
	if err := windows.GetConsoleMode(handle, &mode); err != nil {
		return false
	}
	return windows.SetConsoleMode(handle, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}

// readerGone returns false: on Windows only a write shows that the reader has gone.
func readerGone(*os.File) bool { return false }

// isClosed returns false: on Windows a write to a closed handle fails.
func isClosed(*os.File) bool { return false }
