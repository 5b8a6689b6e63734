package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	locksFolder    = "locks"
	sessionsFolder = "sessions"
	tokensFile     = "tokens"
)

// A folder is the open folder of the store, with those inside it. It is closed when the Store and
// all requests have released it, so that no descriptor waits for the garbage collector.
type folder struct {
	users atomic.Int32 // the Store, its session and its requests

	top   *dir
	locks *dir

	// sessions is nil if it is missing and was opened without create.
	sessions *dir
}

// attributes are the properties of a file that are checked before it is used.
type attributes struct {
	mode     fs.FileMode
	size     int64
	links    uint64
	uid, gid uint32
}

// checkInterval is how long requests may still use a folder that was moved away. Moving it frees
// its locks in any case.
const checkInterval = 10 * time.Millisecond

// retainFolder returns the store's folder for one more user. It opens the folder when it is first
// needed, and again when its path leads to another one. Missing folders are made with create, and
// are fs.ErrNotExist otherwise. The caller must release the folder.
func (s *Store) retainFolder(create bool) (*folder, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return nil, driver.ErrClosed
	}
	if f := s.folder; f != nil {
		now := time.Now()
		if now.Sub(s.folderChecked) < checkInterval {
			return f.retain(), nil
		}
		if f.locks.isAtPath(s.locksPath) {
			s.folderChecked = now
			return f.retain(), nil
		}
	}
	f, err := s.openFolders(create)
	if err != nil {
		return nil, err
	}
	if f.sessions != nil {
		s.setFolder(f.retain())
	}
	return f, nil
}

// setFolder makes f the folder of the next requests. If it is nil, they open the folder anew. The
// caller has s.mu locked.
func (s *Store) setFolder(f *folder) {
	if s.folder != nil {
		s.folder.release()
	}
	s.folder, s.folderChecked = f, time.Time{}
}

// invalidate makes the next request open the folder anew, if f is still the one of s.
func (s *Store) invalidate(f *folder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.folder == f {
		s.setFolder(nil)
	}
}

// retain adds a user. The caller keeps another one from releasing f meanwhile.
func (f *folder) retain() *folder {
	f.users.Add(1)
	return f
}

// release removes a user, and closes f after the last one.
func (f *folder) release() {
	if f.users.Add(-1) > 0 {
		return
	}
	for _, d := range []*dir{f.top, f.locks, f.sessions} {
		if d != nil {
			d.close()
		}
	}
}

// openFolders returns a folder with one user. On an error it leaves nothing open.
func (s *Store) openFolders(create bool) (_ *folder, err error) {
	f := &folder{}
	f.retain()
	defer func() {
		if err == nil {
			return
		}
		f.release()
		verb := "open"
		if create {
			verb = "set up the folder"
		}
		err = notApplied(verb, s.dir, err)
	}()
	if f.top, err = openFolder(s.dir, create); err != nil {
		return nil, err
	}
	kind, err := f.top.network()
	if err != nil {
		return nil, notApplied("examine", s.dir, err)
	}
	if err := s.checkNetwork(kind); err != nil {
		return nil, err
	}
	if f.locks, err = s.openInnerFolder(f, locksFolder, create); err != nil {
		return nil, err
	}
	f.sessions, err = s.openInnerFolder(f, sessionsFolder, create)
	if err != nil && (create || !errors.Is(err, fs.ErrNotExist)) {
		return nil, err
	}
	return f, nil
}

// openInnerFolder opens one of the folders inside the store's. With create it makes a missing one
// with the permissions of the store's folder.
func (s *Store) openInnerFolder(f *folder, name string, create bool) (*dir, error) {
	d, err := f.top.openSubfolder(name)
	for tries := 0; create && errors.Is(err, fs.ErrNotExist) && tries < 20; tries++ {
		if err := f.top.makeDir(name, 0); err != nil {
			return nil, err
		}
		d, err = f.top.openSubfolder(name)
	}
	path := filepath.Join(s.dir, name)
	if err != nil {
		if a, statErr := f.top.lstat(name); statErr == nil && !a.mode.IsDir() {
			return nil, corruptErr(path, "it is "+fileKind(a.mode)+" where a folder must be", "remove it, and see who has put it there")
		}
		return nil, err
	}
	a, err := d.stat()
	if err == nil {
		err = f.checkOwner(path, a)
	}
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// fileKind names the kind of a file that is in the place of another one.
func fileKind(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode.IsRegular():
		return "a file"
	case mode.IsDir():
		return "a folder"
	}
	return "no regular file"
}

// checkOwner refuses a file or folder if its owner cannot have made it by using the store: in a
// folder that its owner alone may write, everything belongs to the owner or to root.
func (f *folder) checkOwner(path string, a attributes) error {
	if a.uid == 0 || int(a.uid) == os.Geteuid() {
		return nil
	}
	top, err := f.top.stat() // Its owner or permissions may have changed.
	if err != nil {
		return notApplied("examine", filepath.Dir(path), err)
	}
	if a.uid == top.uid || top.mode&0o022 != 0 {
		return nil
	}
	return corruptErr(path, fmt.Sprintf("it belongs to the user %d, and the folder, which nobody else may write, to the user %d", a.uid, top.uid),
		fmt.Sprintf("remove it, or chown it to %d if it is right", top.uid))
}

// errNotRegular means that there is something else in the place of a regular file.
var errNotRegular = errors.New("it is not a regular file")

// dirOf returns locks if where is locksFolder, and the store's folder if it is "".
func (f *folder) dirOf(where string) *dir {
	if where == locksFolder {
		return f.locks
	}
	return f.top
}

// createFile creates a file that must not exist. The file is locked before others may open it. So
// another process finds it empty and unlocked after a crash only.
func (f *folder) createFile(d *dir, name string) (*os.File, error) {
	like, err := f.top.stat()
	if err != nil {
		return nil, err
	}
	file, err := d.open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	_ = tryLock(file, exclusive) // A process that was faster finds it empty, and leaves it.
	if err := chmodLike(file, fileMode(like.mode), like); err != nil {
		file.Close()
		_ = d.remove(name)
		return nil, err
	}
	return file, nil
}

// fileMode returns the permissions of files in a folder. Users that may write the folder may read
// and write them. Nobody else may open them, since a user that can open a file can lock it.
func fileMode(folder fs.FileMode) fs.FileMode {
	writers := folder & 0o222
	return writers | writers<<1
}

// modeBits are the permissions that a folder gives to the folders in it.
const modeBits = fs.ModePerm | fs.ModeSticky | fs.ModeSetgid

// chmodLike gives a new file or folder the owner of the folder that it is in, and mode, whatever
// the umask.
func chmodLike(f *os.File, mode fs.FileMode, folder attributes) error {
	if err := chownToFolderOwner(f, folder); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&modeBits == mode {
		return err
	}
	return f.Chmod(mode)
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

// Paths are for messages, for people and for tests; no file is opened by them.

func (s *Store) recordPath(name string) string { return filepath.Join(s.locksPath, fileName(name)) }

func (s *Store) sessionPath(id string) string { return filepath.Join(s.dir, sessionsFolder, id) }

func (s *Store) tokensPath() string { return filepath.Join(s.dir, tokensFile) }
