package filestore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	locksFolder    = "locks"
	sessionsFolder = "sessions"
	tokensFile     = "tokens"
)

// A folder is the open folder of the store, with those inside it.
type folder struct {
	top   *dir
	locks *dir

	// sessions is nil if it is missing and was opened without create.
	sessions *dir
}

// checkInterval is how long requests may still use a folder that was moved away. Moving it frees
// its locks in any case.
const checkInterval = 10 * time.Millisecond

// currentFolder returns the store's folder. It opens the folder when it is first needed, and again when
// its path leads to another one. Missing folders are made with create, and are fs.ErrNotExist
// otherwise. The folder is closed when the path leads to another one, or the Store is closed: requests
// that still use it get os.ErrClosed.
func (s *engine) currentFolder(create bool) (*folder, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return nil, driver.ErrClosed
	}
	if f := s.folder; f != nil && (f.sessions != nil || !create) {
		now := time.Now()
		if now.Sub(s.folderChecked) < checkInterval {
			return f, nil
		}
		if f.sessions != nil && f.locks.isAtPath(s.locksPath) {
			s.folderChecked = now
			return f, nil
		}
	}
	f, err := s.openFolders(create)
	if err != nil {
		return nil, err
	}
	s.setFolder(f)
	return f, nil
}

// setFolder makes f the folder of the next requests. If it is nil, they open the folder anew. The
// caller has s.mu locked.
func (s *engine) setFolder(f *folder) {
	if s.folder != nil {
		s.folder.close()
	}
	s.folder, s.folderChecked = f, time.Time{}
}

// invalidate makes the next request open the folder anew, if f is still the one of s.
func (s *engine) invalidate(f *folder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.folder == f {
		s.setFolder(nil)
	}
}

func (f *folder) close() {
	for _, d := range []*dir{f.top, f.locks, f.sessions} {
		if d != nil {
			d.Close()
		}
	}
}

// openFolders opens the folder. On an error it leaves nothing open.
func (s *engine) openFolders(create bool) (_ *folder, err error) {
	f := &folder{}
	defer func() {
		if err == nil {
			return
		}
		f.close()
		verb := "open"
		if create {
			verb = "set up the folder"
		}
		err = notApplied(verb, s.dir, err)
	}()
	if create {
		if err := makeFolder(s.dir); err != nil {
			return nil, err
		}
	}
	if f.top, err = newDir(os.OpenRoot(s.dir)); err != nil {
		return nil, err
	}
	if err := s.checkFolder(f.top); err != nil {
		return nil, err
	}
	if f.locks, err = f.top.openSubfolder(locksFolder, create); err != nil {
		return nil, err
	}
	f.sessions, err = f.top.openSubfolder(sessionsFolder, create)
	if err != nil && (create || !errors.Is(err, fs.ErrNotExist)) {
		return nil, err
	}
	return f, nil
}

// openSubfolder opens one of the folders inside the store's, and makes a missing one with create.
func (d *dir) openSubfolder(name string, create bool) (*dir, error) {
	sub, err := newDir(d.OpenRoot(name))
	for tries := 0; create && errors.Is(err, fs.ErrNotExist) && tries < 20; tries++ {
		if err := d.makeSubfolder(name); err != nil {
			return nil, wrapErr("make", filepath.Join(d.Name(), name), err)
		}
		sub, err = newDir(d.OpenRoot(name))
	}
	return sub, wrapErr("open", filepath.Join(d.Name(), name), err)
}

// dirOf returns locks if where is locksFolder, and the store's folder if it is "".
func (f *folder) dirOf(where string) *dir {
	if where == locksFolder {
		return f.locks
	}
	return f.top
}

// createFile creates a file that must not exist.
func (f *folder) createFile(d *dir, name string) (*os.File, error) {
	file, err := d.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.setMode(file); err != nil {
		file.Close()
		_ = d.Remove(name)
		return nil, err
	}
	return file, nil
}

// setMode gives a file the permissions of files in f, whatever the umask.
func (f *folder) setMode(file *os.File) error {
	top, err := f.top.Stat(".")
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if mode := fileMode(top.Mode()); err == nil && info.Mode().Perm() != mode {
		err = file.Chmod(mode)
	}
	return err
}

// fileMode returns the permissions of files in a folder. Users that may write the folder may read
// and write them. Nobody else may open them, since a user that can open a file can lock it.
func fileMode(folder fs.FileMode) fs.FileMode {
	writers := folder & 0o222
	return writers | writers<<1
}

// sessionPath is for messages: no file is opened by it.
func (s *engine) sessionPath(id string) string { return filepath.Join(s.dir, sessionsFolder, id) }
