//go:build unix

package filestore

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/driver"
)

// A dir is an open folder. It was reached without a link that another user could have made, and it
// stays the same folder even if its path changes. All files are opened, made and deleted by their
// names in a dir, and links are not followed. So a request never acts outside.
type dir struct {
	file     *os.File       // Its name is the path, for messages.
	selfStat syscall.Stat_t // the state when it was opened

	mu sync.RWMutex
	fd int // the descriptor of file; -1 once it is closed

	// refuseDevices is set if even opening a device is forbidden: other users can create one here,
	// and this process may open all of them.
	refuseDevices bool
}

func newDir(fd int, path string) (*dir, error) {
	file := os.NewFile(uintptr(fd), path)
	d := &dir{file: file, fd: fd}
	if err := syscall.Fstat(fd, &d.selfStat); err != nil {
		file.Close()
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return d, nil
}

// withFD calls a system call with the descriptor of d, and keeps it open meanwhile.
func (d *dir) withFD(call func(fd int) error) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.fd < 0 {
		return driver.ErrClosed
	}
	for {
		if err := call(d.fd); err != unix.EINTR {
			return err
		}
	}
}

func (d *dir) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fd = -1
	return d.file.Close()
}

func (d *dir) name() string { return d.file.Name() }

func (d *dir) stat() (fs.FileInfo, error) { return d.file.Stat() }

// openSubfolder opens a folder in d for listing.
func (d *dir) openSubfolder(name string) (*dir, error) { return d.openDir(name, unix.O_RDONLY) }

func (d *dir) pathOf(name string) string {
	if path := d.file.Name(); path != "/" {
		return path + "/" + name
	}
	return "/" + name
}

func (d *dir) pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: d.pathOf(name), Err: err}
}

// open opens a file, or creates it with O_CREAT and O_EXCL. It fails on a link, and does not wait
// for the other end of a pipe.
func (d *dir) open(name string, flags int, mode fs.FileMode) (*os.File, error) {
	if d.refuseDevices {
		if a, err := d.lstat(name); err == nil && a.mode&fs.ModeDevice != 0 {
			return nil, d.pathError("open", name, errNotRegular)
		}
	}
	fd := -1
	err := d.withFD(func(at int) (err error) {
		fd, err = unix.Openat(at, name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, uint32(mode))
		return err
	})
	if err != nil {
		return nil, d.pathError("open", name, err)
	}
	return os.NewFile(uintptr(fd), d.pathOf(name)), nil
}

// openDir opens a folder in d, with unix.O_RDONLY or reachFlags. It fails on a link.
func (d *dir) openDir(name string, flags int) (*dir, error) {
	fd := -1
	err := d.withFD(func(at int) (err error) {
		fd, err = unix.Openat(at, name, flags|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, d.pathError("open", name, err)
	}
	return newDir(fd, filepath.Join(d.file.Name(), name))
}

func (d *dir) remove(name string) error {
	err := d.withFD(func(at int) error { return unix.Unlinkat(at, name, 0) })
	if err != nil {
		return d.pathError("remove", name, err)
	}
	return nil
}

// lstat describes the entry name of d. It does not follow a link.
func (d *dir) lstat(name string) (attributes, error) {
	var stat unix.Stat_t
	err := d.withFD(func(at int) error { return unix.Fstatat(at, name, &stat, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil {
		return attributes{}, d.pathError("stat", name, err)
	}
	mode := fs.FileMode(stat.Mode) & fs.ModePerm
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFCHR, unix.S_IFBLK:
		mode |= fs.ModeDevice
	default:
		mode |= fs.ModeIrregular
	}
	return attributes{mode: mode, size: stat.Size, links: uint64(stat.Nlink), uid: stat.Uid, gid: stat.Gid}, nil
}

// names returns the names of everything in d.
func (d *dir) names() ([]string, error) {
	list, err := d.openDir(".", unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer list.close()
	return list.file.Readdirnames(-1)
}

// isAtPath reports whether path leads to d.
func (d *dir) isAtPath(path string) bool {
	var there syscall.Stat_t
	return syscall.Stat(path, &there) == nil && there.Dev == d.selfStat.Dev && there.Ino == d.selfStat.Ino
}

// isNamedIn reports whether d is the entry name of the folder at.
func (d *dir) isNamedIn(at *dir, name string) bool {
	var there unix.Stat_t
	err := at.withFD(func(fd int) error { return unix.Fstatat(fd, name, &there, 0) })
	return err == nil && uint64(there.Dev) == uint64(d.selfStat.Dev) && uint64(there.Ino) == uint64(d.selfStat.Ino)
}

// attributesOf describes an open file.
func attributesOf(info fs.FileInfo) attributes {
	stat := info.Sys().(*syscall.Stat_t)
	return attributes{mode: info.Mode(), size: info.Size(), links: uint64(stat.Nlink), uid: stat.Uid, gid: stat.Gid}
}

// disposable reports whether an empty file can be replaced by a new one: it belongs to this user,
// or this process may delete any file.
func (a attributes) disposable() bool {
	user := os.Geteuid()
	return user == 0 || user == int(a.uid)
}

// maxLinks is the maximum number of links that are followed on the way to a folder.
const maxLinks = 40

// openFolder opens the folder at an absolute path. With create it makes the missing parts. It goes
// from folder to folder, and follows a link only where root and this user alone can have created
// it.
func openFolder(path string, create bool) (*dir, error) {
	fd, err := unix.Open("/", reachFlags|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: "/", Err: err}
	}
	top, err := newDir(fd, "/")
	if err != nil {
		return nil, err
	}
	defer top.close()
	return top.walkTo(path, create)
}

// walkTo is openFolder for a path that begins in top. Absolute links lead to top, too.
func (top *dir) walkTo(path string, create bool) (*dir, error) {
	at, err := top.openDir(".", reachFlags)
	if err != nil {
		return nil, err
	}
	defer func() { at.close() }()
	missing, links := 0, 0
	for parts := pathElements(path); len(parts) > 0; {
		next, err := at.openDir(parts[0], reachFlags)
		if err == nil {
			at.close()
			at, parts = next, parts[1:]
			continue
		}
		if errors.Is(err, fs.ErrNotExist) {
			if missing++; !create || missing > 2*len(path) {
				return nil, err
			}
			if err := at.makeSubfolder(parts[0]); err != nil {
				return nil, err
			}
			continue
		}
		target, linkErr := at.trustedLink(parts[0], top)
		if errors.Is(linkErr, errNotLink) {
			return nil, err
		}
		if linkErr != nil {
			return nil, linkErr
		}
		if links++; links > maxLinks {
			return nil, at.pathError("open", parts[0], unix.ELOOP)
		}
		parts = append(pathElements(target), parts[1:]...)
		if filepath.IsAbs(target) {
			begin, err := top.openDir(".", reachFlags)
			if err != nil {
				return nil, err
			}
			at.close()
			at = begin
		}
	}
	found, err := at.openDir(".", unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	info, err := found.file.Stat()
	if err != nil {
		found.close()
		return nil, err
	}
	a := attributesOf(info)
	found.refuseDevices = os.Geteuid() == 0 && (a.uid != 0 || a.mode&0o022 != 0)
	return found, nil
}

// pathElements returns the elements between the slashes of a path.
func pathElements(path string) []string {
	return strings.FieldsFunc(path, func(c rune) bool { return c == '/' })
}

var errNotLink = errors.New("not a link")

// trustedLink returns the target of a link. It refuses a link that another user has made, or could
// have moved to its place.
//
// In a user namespace, root of the host and all users without a number in it share one number,
// 65534, which cannot be trusted as such. It stands for root where nobody else makes anything: if
// the owner of top, the folder that the path begins in, also owns top/name or top/folder/name and
// that folder, and nobody else may write there.
func (d *dir) trustedLink(name string, top *dir) (string, error) {
	link, err := d.lstat(name)
	if err != nil || link.mode&fs.ModeSymlink == 0 {
		return "", errNotLink
	}
	info, err := d.file.Stat()
	if err != nil {
		return "", err
	}
	user, here := os.Geteuid(), attributesOf(info)
	nearTop := here.mode&0o022 == 0 && (top.isNamedIn(d, ".") || top.isNamedIn(d, ".."))
	trusted := func(uid uint32) bool {
		return uid == 0 || int(uid) == user || nearTop && uid == top.selfStat.Uid
	}
	open := here.mode&0o022 != 0 && here.mode&fs.ModeSticky == 0
	if !trusted(link.uid) || !trusted(here.uid) || open || link.links != 1 {
		return "", fmt.Errorf("%w: %s is a symbolic link that another user has made or can replace, and is not followed: "+
			"if it is right, name the folder by its real path", driver.ErrInvalid, d.pathOf(name))
	}
	target := make([]byte, unix.PathMax)
	size := 0
	err = d.withFD(func(at int) (err error) {
		size, err = unix.Readlinkat(at, name, target)
		return err
	})
	if err != nil {
		return "", d.pathError("readlink", name, err)
	}
	return string(target[:size]), nil
}

// makeSubfolder makes a folder that belongs to this user alone, or to the owner of d if this user
// is root.
func (d *dir) makeSubfolder(name string) error {
	info, err := d.file.Stat()
	if err != nil {
		return err
	}
	return d.makeDir(name, 0o700, info)
}

// makeDir makes a folder in d. A folder that root makes where another user is the owner belongs to
// that owner. The folder gets its name after it has its owner and permissions, which are set by its
// descriptor: if another user has put something else in its place meanwhile, that is not changed.
// It is no error if name exists by then.
func (d *dir) makeDir(name string, mode fs.FileMode, like fs.FileInfo) error {
	random := make([]byte, 8)
	rand.Read(random)
	temp := name + "-" + hex.EncodeToString(random)
	if err := d.withFD(func(at int) error { return unix.Mkdirat(at, temp, 0o700) }); err != nil {
		return d.pathError("mkdir", name, err)
	}
	removeTemp := func() {
		_ = d.withFD(func(at int) error { return unix.Unlinkat(at, temp, unix.AT_REMOVEDIR) })
	}
	made, err := d.openDir(temp, unix.O_RDONLY)
	if err != nil {
		removeTemp()
		return err
	}
	defer made.close()
	if err := made.setOwnerAndMode(mode, like); err != nil {
		removeTemp()
		return err
	}
	if err := d.withFD(func(at int) error { return renameNoReplace(at, temp, name) }); err != nil {
		removeTemp()
		if !errors.Is(err, fs.ErrExist) && err != unix.ENOTEMPTY && err != unix.ENOTDIR {
			return d.pathError("rename", name, err)
		}
	}
	return d.sync()
}

// setOwnerAndMode sets the owner and permissions of a folder that was just made. It refuses a
// folder that cannot be the one made: one of another user, or one that is not empty.
func (d *dir) setOwnerAndMode(mode fs.FileMode, like fs.FileInfo) error {
	info, err := d.file.Stat()
	if err != nil {
		return err
	}
	entries, err := d.names()
	if err != nil {
		return err
	}
	if int(attributesOf(info).uid) != os.Geteuid() || len(entries) > 0 {
		return &fs.PathError{Op: "mkdir", Path: d.file.Name(), Err: errors.New("another process has replaced it")}
	}
	if err := chownToFolderOwner(d.file, like); err != nil {
		return err
	}
	if info.Mode()&(fs.ModePerm|fs.ModeSticky|fs.ModeSetgid) == mode {
		return nil
	}
	return d.file.Chmod(mode)
}

// chownToFolderOwner gives a file that root has made in the folder of another user to that user, as
// the file would be of no use to that user otherwise.
func chownToFolderOwner(f *os.File, folder fs.FileInfo) error {
	owner := attributesOf(folder)
	if os.Geteuid() != 0 || owner.uid == 0 {
		return nil
	}
	err := f.Chown(int(owner.uid), int(owner.gid))
	if errors.Is(err, unix.EINVAL) {
		return nil // The owner has no number in this user namespace: the file stays this user's.
	}
	return err
}

// sync makes the names in a folder survive a power loss.
func (d *dir) sync() error {
	if err := d.file.Sync(); !errors.Is(err, unix.EBADF) {
		return err
	}
	readable, err := d.openDir(".", unix.O_RDONLY) // d was opened with reachFlags.
	if err != nil {
		return err
	}
	defer readable.close()
	return readable.file.Sync()
}
