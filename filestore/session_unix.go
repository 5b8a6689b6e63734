//go:build unix

package filestore

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// makeInbox makes the file of a session, a named pipe. It is open for reading and writing under
// another name before it has its own: one that nobody reads from is that of a dead process.
func (f *folder) makeInbox(file string) (*os.File, error) {
	made := file + ".new"
	if err := f.makePipe(made); err != nil {
		return nil, err
	}
	inbox, err := f.OpenFile(made, os.O_RDWR, 0)
	if err == nil {
		err = f.checkInbox(inbox, file)
	}
	if err == nil {
		err = f.share(inbox, made)
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

// checkInbox returns the error of a file that somebody has put into the place of a session's pipe.
// A pipe with another name elsewhere may be that of a living process.
func (f *folder) checkInbox(inbox *os.File, file string) error {
	info, err := inbox.Stat()
	switch {
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeNamedPipe:
		return fs.ErrNotExist
	case namesOf(info) > 1:
		return corruptErr(f.path(file), "it has another name elsewhere", "delete that")
	}
	return nil
}

// openInbox opens the file of a session to write to it, if its process lives, and is errDead
// otherwise.
func (f *folder) openInbox(file string) (*os.File, error) {
	inbox, err := f.OpenFile(file, os.O_WRONLY|openFlags, 0)
	if errors.Is(err, syscall.ENXIO) {
		return nil, errDead
	}
	if err != nil {
		return nil, err
	}
	if err := f.checkInbox(inbox, file); err != nil {
		inbox.Close()
		return nil, err
	}
	return inbox, nil
}

// putLine writes a line, unless the pipe is full of those that a stopped process has not read.
func putLine(inbox *os.File, line []byte) {
	if conn, err := inbox.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _, _ = syscall.Write(int(fd), line) })
	}
}

// awaitLines does nothing: a pipe that is open for writing, too, has no end.
func (s *session) awaitLines() {}
