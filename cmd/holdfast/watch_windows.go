package main

import (
	"os"

	"golang.org/x/sys/windows"
)

// terminalSignals never tell anything: Windows has no such signals. The screen
// notices another size by itself.
func terminalSignals() (resized, resumed <-chan os.Signal) { return nil, nil }

// understandsEscapes reports whether a console can move its cursor, once it has
// been told to listen.
func understandsEscapes(f *os.File) bool {
	handle := windows.Handle(f.Fd())
	var mode uint32
	if err := windows.GetConsoleMode(handle, &mode); err != nil {
		return false
	}
	return windows.SetConsoleMode(handle, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}

// readerGone is not known before something is written.
func readerGone(*os.File) bool { return false }
