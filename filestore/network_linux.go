package filestore

import "syscall"

// networkFileSystems maps the magic numbers of statfs to names. On these file systems a flock may
// reach no further than this host, may vanish with a connection, or depends on a program (FUSE).
var networkFileSystems = map[uint32]string{
	0x00006969: "NFS",
	0x0000517B: "SMB",
	0xFF534D42: "CIFS",
	0xFE534D42: "SMB2",
	0x01021997: "9P",
	0x65735546: "FUSE",
	0x5346414F: "AFS",
	0x6B414653: "AFS",
	0x00C36400: "Ceph",
	0x73757245: "Coda",
	0x0000564C: "NCP",
	0x01161970: "GFS2",
	0x7461636F: "OCFS2",
	0x0BD00BD0: "Lustre",
	0x47504653: "GPFS",
	0x19830326: "BeeGFS",
	0xAAD7AAEA: "PanFS",
	0x786F4256: "a VirtualBox shared folder",
	0xBACBACBC: "a VMware shared folder",
}

// networkNameOf returns the name of the network file system that contains dir, or "".
func networkNameOf(dir string) (string, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return "", err
	}
	return networkFileSystems[uint32(fs.Type)], nil
}

// network is networkNameOf for an open folder.
func (d *dir) network() (string, error) {
	var fs syscall.Statfs_t
	err := d.withFD(func(fd int) error { return syscall.Fstatfs(fd, &fs) })
	return networkFileSystems[uint32(fs.Type)], err
}
