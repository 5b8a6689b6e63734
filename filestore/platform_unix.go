//go:build unix

package filestore

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"
)

const (
	// How a file is locked.
	exclusive = syscall.LOCK_EX
	unlocked  = syscall.LOCK_UN

	openFlags = syscall.O_NONBLOCK // An open does not wait for the other end of a pipe.
	clockStep = time.Duration(0)   // of the clock, by which each end is later
	inboxStep = 0                  // between looks for notices: a pipe that is open for writing, too, has no end
	errDead   = syscall.ENXIO      // of a pipe that nobody reads from: the process has ended
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

// makeInbox makes the file of a session, a named pipe. It is open for reading and writing under
// another name before it has its own: one that nobody reads from is that of a dead process.
func (f *folder) makeInbox(file string) (*os.File, error) {
	made := file + ".new"
	if err := f.makePipe(made); err != nil {
		return nil, err
	}
	inbox, err := f.open(made, os.O_RDWR, fs.ModeNamedPipe)
	if err == nil {
		err = f.share(inbox)
	}
	if err == nil {
		err = f.Rename(made, file)
	}
	if err == nil {
		return inbox, nil
	}
	inbox.Close() // or nothing, if it is nil
	_ = f.Remove(made)
	return nil, err
}

// openInbox opens the file of a session to write to it.
func (f *folder) openInbox(file string) (*os.File, error) {
	return f.open(file, os.O_WRONLY|openFlags, fs.ModeNamedPipe)
}

// putLine writes a line, unless the pipe is full of those that a stopped process has not read.
func putLine(inbox *os.File, line string) {
	if conn, err := inbox.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _, _ = syscall.Write(int(fd), []byte(line)) })
	}
}
