package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/holdfast-go/holdfast/driver"
)

// A dir is an open folder. It stays the same folder even if its path changes, and no link leads out
// of it.
type dir struct {
	*os.Root
	self fs.FileInfo // when it was opened
}

// newDir returns a dir for the result of os.OpenRoot.
func newDir(root *os.Root, err error) (*dir, error) {
	if err != nil {
		return nil, err
	}
	self, err := root.Stat(".")
	if err != nil {
		root.Close()
		return nil, err
	}
	return &dir{root, self}, nil
}

// names returns the names of everything in d.
func (d *dir) names() ([]string, error) {
	list, err := d.Open(".")
	if err != nil {
		return nil, err
	}
	defer list.Close()
	return list.Readdirnames(-1)
}

// isAtPath reports whether path leads to d.
func (d *dir) isAtPath(path string) bool {
	there, err := os.Stat(path)
	return err == nil && os.SameFile(d.self, there)
}

// sync makes the names in a folder survive a power loss.
func (d *dir) sync() error { return syncFolder(d.Open(".")) }

// syncFolder syncs the folder that was opened, and closes it. Windows cannot sync one, and NTFS keeps
// a journal of names.
func syncFolder(f *os.File, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return nil // A folder that may be written need not be readable.
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if runtime.GOOS == "windows" {
		return nil
	}
	return f.Sync()
}

// makeFolder makes the missing parts of a path, for this user alone.
func makeFolder(path string) error {
	parent := filepath.Dir(path)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) || parent == path {
		return nil
	}
	if err := makeFolder(parent); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncFolder(os.Open(parent))
}

// makeSubfolder makes a folder in d, with the permissions of d whatever the umask. It gets its name
// after that. Another process may make it at the same time: then one empty folder takes the place of
// the other.
func (d *dir) makeSubfolder(name string) error {
	self, err := d.Stat(".")
	if err != nil {
		return err
	}
	temp := fmt.Sprintf("%s-%s", name, randomHex(8))
	if err := d.Mkdir(temp, 0o700); err != nil {
		return err
	}
	err = d.Chmod(temp, self.Mode()&(fs.ModePerm|fs.ModeSticky|fs.ModeSetgid))
	if err == nil {
		err = d.Rename(temp, name)
	}
	if err != nil {
		_ = d.Remove(temp)
		if info, statErr := d.Stat(name); statErr == nil && info.IsDir() {
			return nil
		}
		return err
	}
	return d.sync()
}

// nearestExisting returns path, or the nearest folder above it that exists.
func nearestExisting(path string) string {
	for {
		_, err := os.Stat(path)
		if !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// checkFolder refuses a folder on a network file system, and one that others than its owner, root and
// a group may write. Before the folder is open, top is nil; if it is missing, its nearest existing
// parent is checked.
func (s *engine) checkFolder(top *dir) error {
	path := s.dir
	var info fs.FileInfo
	if top != nil {
		info = top.self
	} else {
		path = nearestExisting(s.dir)
		var err error
		if info, err = os.Stat(path); err != nil {
			return wrapErr("examine", path, err)
		}
	}
	kind, err := networkNameOf(path)
	if err != nil {
		return wrapErr("examine", path, err)
	}
	if kind != "" && !s.allowNetwork {
		return fmt.Errorf("%w: %s is on a network file system (%s), where file locks cannot be trusted: "+
			"choose a local folder, or allow it with allow_network=true", driver.ErrUnsupported, s.dir, kind)
	}
	user, owner, found := os.Geteuid(), ownerOf(info), path == s.dir
	switch {
	case owner != user && owner != 0 && (found || user == 0):
		return fmt.Errorf("%w: %s belongs to the user %d, and this process runs as the user %d: name a folder of this user, or one of root "+
			"that a group may write", driver.ErrInvalid, path, owner, user)
	case runtime.GOOS != "windows" && found && info.Mode()&0o002 != 0:
		return fmt.Errorf("%w: every user of this host may write %s, and so take and block its locks: name a folder of this user's own, "+
			"which is made if it is missing, or let a group write this one (chgrp GROUP, chmod 2770)", driver.ErrInvalid, path)
	}
	return nil
}
