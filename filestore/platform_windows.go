package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
)

// How a file is locked.
const (
	exclusive = windows.LOCKFILE_EXCLUSIVE_LOCK
	unlocked  = -1
)

const (
	openFlags = 0
	clockStep = 16 * time.Millisecond
)

// setLock locks or unlocks a byte far behind the end of the file. It waits for an exclusive lock.
// Locks are mandatory on Windows: one on the contents would keep others from reading them.
func setLock(f *os.File, how int) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = conn.Control(func(fd uintptr) {
		at := windows.Overlapped{OffsetHigh: 1 << 30}
		if how == unlocked {
			result = windows.UnlockFileEx(windows.Handle(fd), 0, 1, 0, &at)
		} else {
			result = windows.LockFileEx(windows.Handle(fd), uint32(how), 0, 1, 0, &at)
		}
	})
	return errors.Join(err, result)
}

// bootIDKey holds a number that Windows raises at every boot.
const bootIDKey = `SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters`

func thisHost() (host, error) {
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, bootIDKey, registry.QUERY_VALUE)
	if err != nil {
		return host{}, fmt.Errorf("cannot tell one boot of this host from the next: registry key %s: %w", bootIDKey, err)
	}
	defer key.Close()
	id, _, err := key.GetIntegerValue("BootId")
	if err != nil {
		return host{}, fmt.Errorf("cannot tell one boot of this host from the next: BootId in registry key %s: %w", bootIDKey, err)
	}
	boot := "windows-" + strconv.FormatUint(id, 10)
	return host{boot: boot, uptime: windows.DurationSinceBoot, wall: time.Now, flush: (*os.File).Sync}, nil
}

// networkNameOf returns "": network file systems are not recognized here, so the caller of New
// must know.
func networkNameOf(string) (string, error) { return "", nil }

// namesOf returns 1: on Windows, FileInfo does not tell. That a person has deleted a file that is
// open is not noticed.
func namesOf(fs.FileInfo) int { return 1 }

// groupOf returns -1: a file on Windows belongs to no group.
func groupOf(fs.FileInfo) int { return -1 }

// ownerOf returns this user: on Windows the access list of a folder decides.
func ownerOf(fs.FileInfo) int { return os.Geteuid() }
