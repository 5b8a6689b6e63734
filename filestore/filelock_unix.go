//go:build unix

package filestore

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// How a file is locked.
const (
	exclusive = syscall.LOCK_EX
	unlocked  = syscall.LOCK_UN
)

const (
	// openFlags keep an open from waiting for the other end of a pipe that was put into the folder.
	openFlags = syscall.O_NONBLOCK

	// clockStep is the step of the clock, by which each end is later.
	clockStep = time.Duration(0)
)

// setLock locks or unlocks the whole file. It waits for the lock, which belongs to the open file
// description, not to the process: it lasts until the last descriptor is closed, in any process.
func setLock(f *os.File, how int) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = conn.Control(func(fd uintptr) {
		for result = syscall.EINTR; result == syscall.EINTR; {
			result = syscall.Flock(int(fd), how)
		}
	})
	return errors.Join(err, result)
}

// namesOf returns how many names a file has.
func namesOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Nlink) }

// groupOf returns the number of the group to which a file belongs.
func groupOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Gid) }

// ownerOf returns the number of the user to whom a file belongs.
func ownerOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }
