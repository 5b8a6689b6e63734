package filestore

import (
	"strings"

	"golang.org/x/sys/unix"
)

// networkNameOf returns the name of the network file system that contains dir, or "".
func networkNameOf(dir string) (string, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return "", err
	}
	return networkName(&fs), nil
}

// network is networkNameOf for an open folder.
func (d *dir) network() (string, error) {
	var fs unix.Statfs_t
	if err := d.withFD(func(fd int) error { return unix.Fstatfs(fd, &fs) }); err != nil {
		return "", err
	}
	return networkName(&fs), nil
}

func networkName(fs *unix.Statfs_t) string {
	name := unix.ByteSliceToString(fs.Fstypename[:])
	local := fs.Flags&unix.MNT_LOCAL != 0
	if local && !strings.Contains(name, "fuse") {
		return ""
	}
	return name
}
