package filestore

import (
	"strings"

	"golang.org/x/sys/unix"
)

// onNetwork returns the name of the network file system that dir is on, or "".
func onNetwork(dir string) (string, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return "", err
	}
	name := unix.ByteSliceToString(fs.Fstypename[:])
	local := fs.Flags&unix.MNT_LOCAL != 0
	if local && !strings.Contains(name, "fuse") {
		return "", nil
	}
	return name, nil
}
