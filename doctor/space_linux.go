package doctor

import (
	"fmt"
	"syscall"
)

// The least room for the files of locks.
const (
	leastSpace = 1 << 20
	leastFiles = 256
)

func (l *list) checkSpace(dir string) {
	var system syscall.Statfs_t
	if err := syscall.Statfs(dir, &system); err != nil {
		l.check("file.space", "", true, Unknown, "cannot tell: "+err.Error(), "room for the files of locks", "")
		return
	}
	free := system.Bavail * uint64(system.Bsize)
	text := fmt.Sprintf("%d MiB and %d files are free at %s", free>>20, system.Ffree, dir)
	l.check("file.space", text, free < leastSpace || system.Files > 0 && system.Ffree < leastFiles, Warning, text, // Some systems count no files.
		fmt.Sprintf("%d MiB and %d files: a lock that finds no room is not granted", leastSpace>>20, leastFiles), "free some space there, or another folder")
}
