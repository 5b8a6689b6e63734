package filestore

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

const careful = 0

// sweepsRecords: a file that somebody has open cannot be deleted here, and one
// that is closed first may be taken before it is deleted.
const sweepsRecords = false

// tryLock locks a byte far behind the end of the file, or returns errLocked at
// once. Locks are mandatory here: one on the contents would keep others from
// reading them.
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

// linked: no record is ever deleted here.
func linked(fs.FileInfo) bool { return true }

// adopt: files inherit the access list of their folder here.
func adopt(string, fs.FileInfo) error { return nil }

// syncFolder: a folder cannot be flushed here; NTFS keeps a journal of names.
func syncFolder(string) error { return nil }
