package filestore

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func thisHost() (host, error) {
	id, err := syscall.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return host{}, fmt.Errorf("cannot tell one boot of this host from the next: %w", err)
	}
	uptime := func() time.Duration {
		var ts unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &ts) // It goes on while the machine sleeps.
		return time.Duration(ts.Nano())
	}
	return host{boot: id, uptime: uptime, wall: time.Now, flush: (*os.File).Sync}, nil
}

// makePipe makes a named pipe by its path: the system makes none in a folder that is open.
func (f *folder) makePipe(name string) error { return syscall.Mkfifo(f.path(name), 0o600) }

// networkNameOf returns the name of the network file system that contains dir, or "".
func networkNameOf(dir string) (string, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return "", err
	}
	name := unix.ByteSliceToString(fs.Fstypename[:])
	if fs.Flags&unix.MNT_LOCAL != 0 && !strings.Contains(name, "fuse") {
		return "", nil
	}
	return name, nil
}
