package filestore

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/holdfast-go/holdfast/driver"
)

// A folder is the open folder of a Store. It stays the same folder even if its path changes, and no
// link leads out of it.
type folder struct {
	*os.Root
	store *Store
	self  fs.FileInfo // when it was opened
	mode  fs.FileMode // of its files

	shards  [shardCount]shard
	session *session // nil until it is needed
}

// currentFolder returns the store's folder and its session. It opens the folder when it is first
// needed, and again when its path leads to another one or the session was deleted. With makes it
// makes what is missing. Otherwise a missing folder is fs.ErrNotExist, and a missing session nil. A
// path that cannot be examined for a moment is an error of the request, and the locks stay.
func (s *Store) currentFolder(makes bool) (f *folder, own *session, err error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.closing.Err() != nil {
		return nil, nil, driver.ErrClosed
	}
	if s.folder != nil {
		there, err := os.Stat(s.dir)
		isGone := err == nil && !os.SameFile(s.folder.self, there)
		if own := s.folder.session; own != nil {
			file, err := own.file.Stat()
			isGone = isGone || err == nil && namesOf(file) == 0 // For others the process is dead then.
		}
		switch {
		case isGone, errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			s.folder.close()
			s.folder = nil
		case err != nil:
			return nil, nil, notApplied("examine", s.dir, err)
		}
	}
	for s.folder == nil {
		f, path, err := s.openFolder()
		switch {
		case err == nil && path == s.dir:
			s.folder = f
		case err == nil:
			if err = fs.ErrNotExist; makes {
				missing, _ := filepath.Rel(path, s.dir)
				err = f.MkdirAll(missing, 0o700) // It follows no link that leads out of path.
			}
			f.close()
		}
		if err != nil {
			return nil, nil, notApplied("open", s.dir, err)
		}
	}
	if f = s.folder; makes && f.session == nil {
		f.session, err = f.openSession()
	}
	return f, f.session, err
}

// openFolder opens the folder, or the nearest one above it that exists, if it may be used.
func (s *Store) openFolder() (f *folder, path string, err error) {
	f = &folder{store: s}
	for path = s.dir; ; path = filepath.Dir(path) {
		f.Root, err = os.OpenRoot(path + string(filepath.Separator)) // This waits for no other end of a pipe.
		if !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
			break
		}
	}
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		err = at.Err // The caller names the path.
	}
	if info, _ := os.Stat(path); info != nil && errors.Is(err, fs.ErrPermission) {
		err = cmp.Or(s.checkFolder(path, info), err) // It may say why.
	}
	if err != nil {
		return nil, path, err
	}
	if f.self, err = f.Stat("."); err == nil {
		err = s.checkFolder(path, f.self)
	}
	if err == nil && path == s.dir {
		older, _ := fs.Glob(f.FS(), ".lock-[0-9][0-9]") // The pattern is well formed.
		if sessions, _ := f.Lstat("sessions"); sessions != nil || len(older) > 0 {
			err = fmt.Errorf("%w: %s has the locks of an older version: end the programs that use them, "+
				"and delete sessions and .lock-00 to .lock-99 in it, or name another folder", driver.ErrUnsupported, s.dir)
		}
	}
	if err != nil {
		f.close()
		return nil, path, err
	}
	// Users that may write the folder may read and write its files. Nobody else may open them,
	// since a user that can open a file can lock it.
	writers := f.self.Mode() & 0o222
	f.mode = writers | writers<<1
	for i := range f.shards {
		f.shards[i] = shard{folder: f, name: shardFile(i)}
	}
	return f, path, nil
}

// older is an empty folder. Older versions take it for the locks of still older ones, and refuse
// the folder that it is in.
const older = "locks"

// close ends the session. The files of locks are closed when nothing uses them any more.
func (f *folder) close() {
	if f.session != nil {
		f.session.close()
	}
	f.Root.Close()
}

// checkFolder returns an error if the folder is on a network file system, belongs to another user
// than this one and root, or is writable for everybody. A group may write it if its members may
// remove each other's files. path is the folder, or the nearest one above it that exists.
func (s *Store) checkFolder(path string, info fs.FileInfo) error {
	kind, err := networkNameOf(path)
	if err != nil {
		return err
	}
	user, owner, mode, isMissing := os.Geteuid(), ownerOf(info), info.Mode(), path != s.dir
	switch {
	case kind != "" && !s.allowNetwork:
		return fmt.Errorf("%w: %s is on a network file system (%s), where file locks cannot be "+
			"trusted: choose a local folder, or allow it with allow_network=true",
			driver.ErrUnsupported, s.dir, kind)
	case owner != user && owner != 0 && (!isMissing || user == 0):
		return fmt.Errorf("%w: %s belongs to the user %d, and this process runs as the user %d: "+
			"name a folder of this user, or one of root that a group may write",
			driver.ErrInvalid, path, owner, user)
	case isMissing || runtime.GOOS == "windows":
		return nil
	case mode&0o002 != 0:
		return fmt.Errorf("%w: every user of this host may write %s, and so take and block its "+
			"locks: name a folder of this user's own, which is made if it is missing, or one of "+
			"root that a group may write", driver.ErrInvalid, path)
	case mode&0o020 != 0 && mode&fs.ModeSticky != 0:
		return fmt.Errorf("%w: the users of %s may not remove each other's files from it, since it "+
			"is sticky: chmod -t", driver.ErrInvalid, path)
	}
	return nil
}

// path is for messages: no file is opened by it.
func (f *folder) path(file string) string { return filepath.Join(f.store.dir, file) }

// open opens a file of the store to write to it. It refuses what is of another kind, and what has
// another name elsewhere: somebody may have put it there to have it written.
func (f *folder) open(file string, flags int, kind fs.FileMode) (*os.File, error) {
	opened, err := f.OpenFile(file, flags, 0)
	if err != nil {
		if there, _ := f.Lstat(file); there != nil && there.Mode().Type() != kind {
			err = f.corrupt(file, linked)
		}
		return nil, err
	}
	info, err := opened.Stat()
	if err == nil && (info.Mode().Type() != kind || namesOf(info) > 1) {
		err = f.corrupt(file, linked)
	}
	if err != nil {
		opened.Close()
		return nil, err
	}
	return opened, nil
}

// create makes a file that must not exist. After an error there may be one, to be closed.
func (f *folder) create(file string) (*os.File, error) {
	made, err := f.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = f.share(made)
	}
	return made, err
}

// share gives a new file the group of the folder and the permissions of its files, whatever the
// umask. If this user cannot give it that group, it is for this user alone: the group that it has
// may have no right to write the folder.
func (f *folder) share(made *os.File) error {
	mode := f.mode
	if mode != 0o600 && made.Chown(-1, groupOf(f.self)) != nil {
		mode = 0o600
	}
	return made.Chmod(mode)
}

// notApplied returns the error of a request that has changed nothing: what was done with which
// file. An error that says what is wrong stays as it is.
func notApplied(verb, path string, err error) error {
	if driver.Permanent(err) {
		return err
	}
	return driver.NotApplied(fmt.Errorf("cannot %s %s: %w", verb, path, err))
}

const (
	linked  = "it is no file of this store, or has another name elsewhere"
	notOurs = "it is not what this store has written"
)

// corrupt returns the error of a file that somebody else has made or written.
func (f *folder) corrupt(file, why string) error {
	return fmt.Errorf("%w: %s: %s; look at it, and delete it when nobody holds a lock in it, if the clock of this "+
		"host is right: tokens then go on from the time of day", driver.ErrCorrupt, f.path(file), why)
}
