package filestore

import (
	"errors"
	"io/fs"
	"os"
)

// A dir is an open folder. All files are opened, made and deleted by their names in it, and no link
// leads out of it.
type dir struct{ root *os.Root }

func (d *dir) close() error { return d.root.Close() }

// open opens a file, or creates it with O_CREATE and O_EXCL.
func (d *dir) open(name string, flags int, mode fs.FileMode) (*os.File, error) {
	return d.root.OpenFile(name, flags, mode)
}

func (d *dir) remove(name string) error { return d.root.Remove(name) }

// lstat describes the entry name of d. It does not follow a link.
func (d *dir) lstat(name string) (attributes, error) {
	info, err := d.root.Lstat(name)
	if err != nil {
		return attributes{}, err
	}
	return attributesOf(info), nil
}

// names returns the names of everything in d.
func (d *dir) names() ([]string, error) {
	list, err := d.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer list.Close()
	return list.Readdirnames(-1)
}

// isAtPath reports whether path leads to d.
func (d *dir) isAtPath(path string) bool {
	there, err := os.Stat(path)
	if err != nil {
		return false
	}
	here, err := d.root.Stat(".")
	return err == nil && os.SameFile(here, there)
}

func (d *dir) stat() (attributes, error) {
	info, err := d.root.Stat(".")
	if err != nil {
		return attributes{}, err
	}
	return attributesOf(info), nil
}

// sync does nothing: Windows cannot flush a folder, and NTFS keeps a journal of names.
func (d *dir) sync() error { return nil }

// openSubfolder opens a folder in d. It fails on a link.
func (d *dir) openSubfolder(name string) (*dir, error) {
	if info, err := d.root.Lstat(name); err == nil && !info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("not a folder")}
	}
	root, err := d.root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return &dir{root: root}, nil
}

// makeDir makes a folder in d. The folder inherits the access list of d.
func (d *dir) makeDir(name string, _ fs.FileMode) error {
	return d.root.Mkdir(name, 0o700)
}

// openFolder opens the folder at a path. With create it makes the missing parts.
func openFolder(path string, create bool) (*dir, error) {
	if create {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, err
		}
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &dir{root: root}, nil
}

// attributesOf describes an open file, as far as this package needs it.
func attributesOf(info fs.FileInfo) attributes {
	return attributes{mode: info.Mode(), size: info.Size(), links: 1}
}

// disposable returns false: an empty file is used as it is, since it cannot be replaced while it is
// open.
func (attributes) disposable() bool { return false }

// chownToFolderOwner does nothing: on Windows files inherit the access list of their folder.
func chownToFolderOwner(*os.File, attributes) error { return nil }
