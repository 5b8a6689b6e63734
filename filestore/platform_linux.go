package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func thisHost() (host, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return host{}, fmt.Errorf("cannot tell one boot of this host from the next (is /proc mounted?): %w", err)
	}
	offset, err := timeNamespaceOffset()
	if err != nil {
		return host{}, fmt.Errorf("cannot tell the time since the boot (is the /proc of this PID namespace mounted?): %w", err)
	}
	// The clock behind time.Now and time.Since stops while the host is suspended, and differs from
	// process to process.
	uptime := func() time.Duration {
		var ts unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // Every kernel that Go runs on has it.
		return time.Duration(ts.Nano()) - offset
	}
	return host{boot: strings.TrimSpace(string(id)), uptime: uptime, wall: time.Now, flush: (*os.File).Sync}, nil
}

// timeNamespaceOffset returns how far the boot clock of this time namespace is ahead of the host's.
// A kernel without such namespaces has no offsets. Where this process itself is not in /proc, they
// are not known.
func timeNamespaceOffset() (time.Duration, error) {
	text, err := os.ReadFile("/proc/self/timens_offsets")
	if errors.Is(err, fs.ErrNotExist) {
		_, err := os.Stat("/proc/self/stat")
		return 0, err
	}
	var seconds, nanos int64
	if err == nil {
		_, offset, _ := strings.Cut(string(text), "boottime")
		_, err = fmt.Sscan(offset, &seconds, &nanos)
	}
	return time.Duration(seconds)*time.Second + time.Duration(nanos), err
}

// makePipe makes a named pipe in the folder that is open.
func (f *folder) makePipe(name string) error {
	dir, err := f.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	return unix.Mkfifoat(int(dir.Fd()), name, 0o600)
}

// networkFileSystems maps the magic numbers of statfs to names. On these file systems a flock may
// reach no further than this host, may be granted twice, may vanish with a connection, or depends
// on a program (FUSE).
var networkFileSystems = map[uint32]string{
	0x00006969: "NFS",
	0x0000517B: "SMB",
	0xFF534D42: "CIFS",
	0xFE534D42: "SMB2",
	0x01021997: "9P",
	0x65735546: "FUSE",
	0x6A656A63: "a bind mount of Docker Desktop",
	0x5346414F: "AFS",
	0x6B414653: "AFS",
	0x61636673: "ACFS",
	0x00C36400: "Ceph",
	0x73757245: "Coda",
	0x0000564C: "NCP",
	0x01161970: "GFS2",
	0x7461636F: "OCFS2",
	0x0BD00BD0: "Lustre",
	0x47504653: "GPFS",
	0x19830326: "BeeGFS",
	0xAAD7AAEA: "PanFS",
	0xBEEFDEAD: "SNFS",
	0x20030528: "OrangeFS",
	0xA501FCF5: "VxFS",
	0x013111A8: "IBRIX",
	0x786F4256: "a VirtualBox shared folder",
	0x7C7C6673: "a Parallels shared folder",
	0xBACBACBC: "a VMware shared folder",
}

// networkNameOf returns the name of the network file system that contains dir, or "".
func networkNameOf(dir string) (string, error) {
	var fs syscall.Statfs_t
	err := syscall.Statfs(dir, &fs)
	return networkFileSystems[uint32(fs.Type)], err
}
