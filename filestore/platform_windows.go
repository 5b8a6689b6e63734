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

const (
	// How a file is locked.
	exclusive = windows.LOCKFILE_EXCLUSIVE_LOCK
	unlocked  = -1

	openFlags = 0
	clockStep = 16 * time.Millisecond
	inboxStep = 20 * time.Millisecond
)

var errDead = errors.New("the process has ended")

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
	var id uint64
	if err == nil {
		defer key.Close()
		id, _, err = key.GetIntegerValue("BootId")
	}
	if err != nil {
		return host{}, fmt.Errorf("cannot tell one boot of this host from the next: BootId in registry key %s: %w", bootIDKey, err)
	}
	boot := "windows-" + strconv.FormatUint(id, 10)
	return host{boot: boot, uptime: windows.DurationSinceBoot, wall: time.Now, flush: (*os.File).Sync}, nil
}

// networkNameOf returns "": network file systems are not recognized here.
func networkNameOf(string) (string, error) { return "", nil }

// namesOf returns 1: FileInfo does not tell. That an open file was deleted is not noticed.
func namesOf(fs.FileInfo) int { return 1 }

// groupOf returns -1: a file on Windows belongs to no group.
func groupOf(fs.FileInfo) int { return -1 }

// ownerOf returns this user: on Windows the access list of a folder decides.
func ownerOf(fs.FileInfo) int { return os.Geteuid() }

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

// openInbox opens the file of a session to write to it. The error is errDead if the process of the
// session is dead. It uses a shared lock, so that two looks at the same time do not take each other
// for the process. It removes the file of a dead session under that lock: a session that is being
// made finds its file there for good, or missing.
func (f *folder) openInbox(file string) (*os.File, error) {
	inbox, err := f.open(file, os.O_RDWR|os.O_APPEND, 0)
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

func putLine(inbox *os.File, line string) { _, _ = inbox.WriteString(line) }
