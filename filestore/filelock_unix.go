//go:build unix

package filestore

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// How a file is locked.
const (
	exclusive = syscall.LOCK_EX
	shared    = syscall.LOCK_SH
)

// canSweepRecords is true: a locked file can be deleted while it is open.
const canSweepRecords = true

// tryLock locks the whole file, or returns errLocked at once. The lock belongs to the open file
// description, not to the process: it lasts until its last descriptor is closed, in any process.
func tryLock(f *os.File, how int) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = conn.Control(func(fd uintptr) {
		for result = syscall.EINTR; result == syscall.EINTR; {
			result = syscall.Flock(int(fd), how|syscall.LOCK_NB)
		}
	})
	if errors.Is(result, syscall.EWOULDBLOCK) {
		return errLocked
	}
	return errors.Join(err, result)
}

// isUnlinked reports whether an open file has lost its name.
func isUnlinked(info fs.FileInfo) bool { return info.Sys().(*syscall.Stat_t).Nlink == 0 }

// ownerOf returns the number of the user to whom a file belongs.
func ownerOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }
