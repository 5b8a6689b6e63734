package filestore

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// canSweepRecords is false: on Windows a file that any process has open cannot be deleted, and one
// that is closed first may be locked before it is deleted.
const canSweepRecords = false

// tryLock locks a byte far behind the end of the file, or returns errLocked at once. Locks are
// mandatory on Windows: one on the contents would keep others from reading them.
func tryLock(f *os.File, how lockKind) error {
	err := lockFileEx(f, how, windows.LOCKFILE_FAIL_IMMEDIATELY)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return errLocked
	}
	return err
}

// waitLock waits until it has locked the file. If the file is closed meanwhile,
// its handle stays open until then, and not longer.
func waitLock(f *os.File, how lockKind) error { return lockFileEx(f, how, 0) }

func lockFileEx(f *os.File, how lockKind, flags uint32) error {
	if how == exclusive {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = conn.Control(func(fd uintptr) {
		at := windows.Overlapped{OffsetHigh: 1 << 30}
		result = windows.LockFileEx(windows.Handle(fd), flags, 0, 1, 0, &at)
	})
	if err != nil {
		return err
	}
	return result
}
