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
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/driver"
)

// A dir is an open folder. It was reached without a link that another user could have made, and it
// stays the same folder even if its path changes. All files are opened, made and deleted by their
// names in a dir, and links are not followed. So a request never acts outside.
type dir struct {
	file *os.File       // Its name is the path, for messages.
	fd   int            // the descriptor of file
	self syscall.Stat_t // the state when it was opened

	// refuseDevices is set if even opening a device is forbidden: other users can create one here,
	// and this process may open all of them.
	refuseDevices bool
}

func newDir(fd int, path string) (*dir, error) {
	d := &dir{file: os.NewFile(uintptr(fd), path), fd: fd}
	if err := syscall.Fstat(fd, &d.self); err != nil {
		d.close()
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return d, nil
}

// call makes a system call until no signal interrupts it.
func call(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

func (d *dir) close() error { return d.file.Close() }

func (d *dir) stat() (attributes, error) {
	info, err := d.file.Stat()
	if err != nil {
		return attributes{}, err
	}
	return attributesOf(info), nil
}

// pathError returns the error of an operation on the entry name of d, or nil.
func (d *dir) pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: d.pathOf(name), Err: err}
}

func (d *dir) pathOf(name string) string {
	return strings.TrimSuffix(d.file.Name(), "/") + "/" + name
}

// open opens a file, or creates it with O_CREAT and O_EXCL. It fails on a link, and does not wait
// for the other end of a pipe.
func (d *dir) open(name string, flags int, mode fs.FileMode) (*os.File, error) {
	if d.refuseDevices {
		if a, err := d.lstat(name); err == nil && a.mode&fs.ModeDevice != 0 {
			return nil, d.pathError("open", name, errNotRegular)
		}
	}
	fd, err := d.openFD(name, flags|unix.O_NONBLOCK, mode)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), d.pathOf(name)), nil
}

func (d *dir) openFD(name string, flags int, mode fs.FileMode) (int, error) {
	for {
		fd, err := unix.Openat(d.fd, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(mode))
		if err != unix.EINTR {
			return fd, d.pathError("open", name, err)
		}
	}
}

// openDir opens a folder in d, with unix.O_RDONLY or reachFlags. It fails on a link.
func (d *dir) openDir(name string, flags int) (*dir, error) {
	fd, err := d.openFD(name, flags|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	sub, err := newDir(fd, filepath.Join(d.file.Name(), name))
	if err != nil {
		return nil, err
	}
	sub.refuseDevices = d.refuseDevices
	return sub, nil
}

// openSubfolder opens a folder in d for listing.
func (d *dir) openSubfolder(name string) (*dir, error) { return d.openDir(name, unix.O_RDONLY) }

func (d *dir) remove(name string) error {
	return d.pathError("remove", name, call(func() error { return unix.Unlinkat(d.fd, name, 0) }))
}

// lstat describes the entry name of d. It does not follow a link.
func (d *dir) lstat(name string) (attributes, error) {
	var stat unix.Stat_t
	if err := call(func() error { return unix.Fstatat(d.fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW) }); err != nil {
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
	return syscall.Stat(path, &there) == nil && there.Dev == d.self.Dev && there.Ino == d.self.Ino
}

// isNamedIn reports whether d is the entry name of the folder at.
func (d *dir) isNamedIn(at *dir, name string) bool {
	var there unix.Stat_t
	err := call(func() error { return unix.Fstatat(at.fd, name, &there, 0) })
	return err == nil && uint64(there.Dev) == uint64(d.self.Dev) && uint64(there.Ino) == uint64(d.self.Ino)
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
		if errors.Is(err, fs.ErrNotExist) && create && missing < 2*len(path) {
			missing++
			if err := at.makeDir(parts[0], 0o700); err != nil {
				return nil, err
			}
			continue
		}
		rest := parts[1:]
		if err != nil {
			target, linkErr := at.trustedLink(parts[0], top)
			if linkErr != nil {
				return nil, linkErr
			}
			if target == "" {
				return nil, err
			}
			if links++; links > maxLinks {
				return nil, at.pathError("open", parts[0], unix.ELOOP)
			}
			rest = append(pathElements(target), rest...)
			from := at
			if filepath.IsAbs(target) {
				from = top
			}
			if next, err = from.openDir(".", reachFlags); err != nil {
				return nil, err
			}
		}
		at.close()
		at, parts = next, rest
	}
	found, err := at.openDir(".", unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	writable := found.self.Mode&0o022 != 0
	found.refuseDevices = os.Geteuid() == 0 && (found.self.Uid != 0 || writable)
	return found, nil
}

// pathElements returns the elements between the slashes of a path.
func pathElements(path string) []string {
	return strings.FieldsFunc(path, func(c rune) bool { return c == '/' })
}

// trustedLink returns the target of a link, or "" if name is no link. It refuses a link that
// another user has made, or could have moved to its place.
//
// In a user namespace, root of the host and all users without a number in it share one number,
// 65534, which cannot be trusted as such. It stands for root where nobody else makes anything: if
// the owner of top, the folder that the path begins in, also owns top/name or top/folder/name and
// that folder, and nobody else may write there.
func (d *dir) trustedLink(name string, top *dir) (string, error) {
	link, err := d.lstat(name)
	if err != nil || link.mode&fs.ModeSymlink == 0 {
		return "", nil
	}
	here, err := d.stat()
	if err != nil {
		return "", err
	}
	user := os.Geteuid()
	nearTop := here.mode&0o022 == 0 && (top.isNamedIn(d, ".") || top.isNamedIn(d, ".."))
	trusted := func(uid uint32) bool {
		return uid == 0 || int(uid) == user || nearTop && uid == top.self.Uid
	}
	open := here.mode&0o022 != 0 && here.mode&fs.ModeSticky == 0
	if !trusted(link.uid) || !trusted(here.uid) || open || link.links != 1 {
		return "", fmt.Errorf("%w: %s is a symbolic link that another user has made or can replace, and is not followed: "+
			"if it is right, name the folder by its real path", driver.ErrInvalid, d.pathOf(name))
	}
	target := make([]byte, unix.PathMax)
	size := 0
	err = call(func() (err error) {
		size, err = unix.Readlinkat(d.fd, name, target)
		return err
	})
	return string(target[:max(size, 0)]), d.pathError("readlink", name, err)
}

// makeDir makes a folder in d with mode, or with the permissions of d if mode is 0. A folder that
// root makes where another user is the owner belongs to that owner. The folder gets its name after
// it has its owner and permissions, which are set by its descriptor: if another user has put
// something else in its place meanwhile, that is not changed. It is no error if name exists by
// then.
func (d *dir) makeDir(name string, mode fs.FileMode) error {
	like, err := d.stat()
	if err != nil {
		return err
	}
	if mode == 0 {
		mode = like.mode & modeBits
	}
	random := make([]byte, 8)
	rand.Read(random)
	temp := name + "-" + hex.EncodeToString(random)
	if err := call(func() error { return unix.Mkdirat(d.fd, temp, 0o700) }); err != nil {
		return d.pathError("mkdir", name, err)
	}
	removeTemp := func() {
		_ = call(func() error { return unix.Unlinkat(d.fd, temp, unix.AT_REMOVEDIR) })
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
	if err := call(func() error { return renameNoReplace(d.fd, temp, name) }); err != nil {
		removeTemp()
		if !errors.Is(err, fs.ErrExist) && err != unix.ENOTEMPTY && err != unix.ENOTDIR {
			return d.pathError("rename", name, err)
		}
	}
	return d.sync()
}

// setOwnerAndMode sets the owner and permissions of a folder that was just made. It refuses a
// folder that cannot be the one made: one of another user, or one that is not empty.
func (d *dir) setOwnerAndMode(mode fs.FileMode, like attributes) error {
	entries, err := d.names()
	if err != nil {
		return err
	}
	if int(d.self.Uid) != os.Geteuid() || len(entries) > 0 {
		return &fs.PathError{Op: "mkdir", Path: d.file.Name(), Err: errors.New("another process has replaced it")}
	}
	return chmodLike(d.file, mode, like)
}

// chownToFolderOwner gives a file that root has made in the folder of another user to that user, as
// the file would be of no use to that user otherwise.
func chownToFolderOwner(f *os.File, folder attributes) error {
	if os.Geteuid() != 0 || folder.uid == 0 {
		return nil
	}
	err := f.Chown(int(folder.uid), int(folder.gid))
	if errors.Is(err, unix.EINVAL) {
		return nil // The owner has no number in this user namespace: the file stays this user's.
	}
	return err
}

// sync makes the names in a folder survive a power loss.
func (d *dir) sync() error {
	readable, err := d.openDir(".", unix.O_RDONLY) // d may have been opened with reachFlags.
	if err != nil {
		return err
	}
	defer readable.close()
	return readable.file.Sync()
}
