//go:build unix

package filestore

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// careful refuses a symbolic link in the place of a file, since in a folder that
// several users share it could point at a file that only one of them may write,
// and does not wait for the other end of a pipe in that place.
const careful = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// sweepsRecords: a locked file can be deleted while it is open.
const sweepsRecords = true

// tryLock locks the whole file or returns errLocked at once. The lock belongs
// to what open(2) has made, not to the process: it lasts until the last
// descriptor of it is closed, in whichever process.
func tryLock(f *os.File, how lockKind) error {
	err := flock(f, how, syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errLocked
	}
	return err
}

// waitLock waits until it has locked the file. If the file is closed meanwhile,
// its descriptor stays open until then, and not longer.
func waitLock(f *os.File, how lockKind) error { return flock(f, how, 0) }

func flock(f *os.File, how lockKind, flags int) error {
	op := syscall.LOCK_EX | flags
	if how == shared {
		op = syscall.LOCK_SH | flags
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = conn.Control(func(fd uintptr) {
		for result = syscall.EINTR; result == syscall.EINTR; {
			result = syscall.Flock(int(fd), op)
		}
	})
	if err != nil {
		return err
	}
	return result
}

// linked reports whether the file still has a name. One that has none was
// swept between open and lock.
func linked(info fs.FileInfo) bool {
	return info.Sys().(*syscall.Stat_t).Nlink > 0
}

// adopt gives what root has created in somebody else's folder to that somebody,
// who could not use it otherwise.
func adopt(path string, folder fs.FileInfo) error {
	owner := folder.Sys().(*syscall.Stat_t)
	if os.Geteuid() != 0 || owner.Uid == 0 {
		return nil
	}
	return os.Lchown(path, int(owner.Uid), int(owner.Gid))
}

// syncFolder makes the names in a folder last through a power loss.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}
