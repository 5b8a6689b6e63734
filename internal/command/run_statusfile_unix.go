//go:build unix

package command

import (
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// allowTerminalOutput lets a process in the background write to its terminal, which might stop
// it for that otherwise, until restore is called.
func allowTerminalOutput() (restore func()) {
	signal.Ignore(syscall.SIGTTOU)
	return func() { signal.Reset(syscall.SIGTTOU) }
}

// checkLinkOwner refuses a link or a pipe in a folder that every user can write to unless it
// belongs to this user or to the owner of the folder. Another user could have put it there to
// have another file replaced.
func checkLinkOwner(folder, path string, info fs.FileInfo) error {
	if folder == "" {
		folder = "."
	}
	of, err := os.Stat(folder)
	if err != nil {
		return err
	}
	owner := ownerOf(info)
	const writable = 0o002
	if owner == os.Geteuid() || owner == ownerOf(of) || of.Mode()&fs.ModeSticky == 0 || of.Mode()&writable == 0 {
		return nil
	}
	return fmt.Errorf("%q is not followed: it belongs to another user, in a folder that everybody can write to", path)
}

func ownerOf(info fs.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}

// isInherited reports whether the open file at path was open when this program was started. It
// returns true for files of other processes. The files that the program has opened itself are
// closed on exec.
func isInherited(path string) bool {
	folder, name := filepath.Split(path)
	own := fmt.Sprintf("/proc/%d/", os.Getpid())
	number, err := strconv.Atoi(name)
	if err != nil || filepath.Base(folder) != "fd" || !strings.HasPrefix(path, own) && !strings.HasPrefix(path, "/dev/fd/") {
		return true
	}
	flags, err := unix.FcntlInt(uintptr(number), unix.F_GETFD, 0)
	return err == nil && flags&unix.FD_CLOEXEC == 0
}

// noFollowFlag is the flag of open for a path without a link at its end, which may have become
// one since it was checked.
func (f statusFile) noFollowFlag() int {
	if isDescriptor(f.path) {
		return 0
	}
	return unix.O_NOFOLLOW
}
