package filestore

import (
	"fmt"
	"syscall"

	"github.com/holdfast-go/holdfast/driver"
)

// The least room for the files of locks: one of a page for each name and one for each process.
const (
	leastSpace = 1 << 20
	leastFiles = 256
)

// examineHost checks what Linux may run out of.
func examineHost(dir string) []driver.Finding {
	space := driver.Finding{Check: "file.space", Severity: driver.SeverityOK}
	var system syscall.Statfs_t
	if err := call(func() error { return syscall.Statfs(dir, &system) }); err != nil {
		space.Severity, space.Found, space.Want = driver.SeverityUnknown, "cannot tell: "+err.Error(), "room for the files of locks"
	} else {
		free := system.Bavail * uint64(system.Bsize)
		space.Found = fmt.Sprintf("%d MiB and %d files are free at %s", free>>20, system.Ffree, dir)
		if free < leastSpace || system.Files > 0 && system.Ffree < leastFiles { // some systems count no files
			space.Severity, space.Want = driver.SeverityWarning, fmt.Sprintf("%d MiB and %d files: a lock that finds no room is not granted", leastSpace>>20, leastFiles)
			space.Remedy = "free some space there, or another folder"
		}
	}
	watches := driver.Finding{Check: "file.inotify", Severity: driver.SeverityOK, Found: "waiters can be notified by inotify"}
	if watch, err := newInotify(); err != nil {
		watches.Severity = driver.SeverityWarning
		watches.Found = fmt.Sprintf("no inotify instance is left (%v): waiters look at the name four times a second", err)
		watches.Want, watches.Remedy = "an instance for each process that waits", "sysctl fs.inotify.max_user_instances=1024"
	} else {
		_ = watch.file.Close()
	}
	return []driver.Finding{space, watches}
}
