package filestore

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

// inboxStep is how often a Store looks for notices.
const inboxStep = 20 * time.Millisecond

// makeInbox makes the file of a session, which is locked as long as its process lives.
func (f *folder) makeInbox(file string) (*os.File, error) {
	inbox, err := f.create(file)
	if err == nil {
		if err = setLock(inbox, exclusive); err == nil { // Others may look at it, for a moment.
			_, err = f.Lstat(file)
		}
	}
	if err != nil {
		inbox.Close() // or nothing, if it is nil
		_ = f.Remove(file)
		return nil, err
	}
	return inbox, nil
}

// openInbox opens the file of a session to write to it, if its process lives, and is errDead
// otherwise. It uses a shared lock, so that two looks at the same time do not take each other for
// the process. It removes the file of a dead session under that lock: a session that is being made
// finds its file there for good, or missing.
func (f *folder) openInbox(file string) (*os.File, error) {
	inbox, _, err := f.open(file, os.O_RDWR|os.O_APPEND)
	if err != nil {
		return nil, err
	}
	err = setLock(inbox, windows.LOCKFILE_FAIL_IMMEDIATELY)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return inbox, nil
	}
	if err == nil {
		_ = f.Remove(file)
		err = errDead
	}
	inbox.Close()
	return nil, err
}

func putLine(inbox *os.File, line []byte) { _, _ = inbox.Write(line) }

// awaitLines waits for more notices, at the end of the file.
func (s *session) awaitLines() { sleep(s.closing, inboxStep) }
