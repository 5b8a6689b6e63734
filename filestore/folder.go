package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/retry"
)

const (
	locksFolder    = "locks"
	sessionsFolder = "sessions"
	tokensFile     = "tokens"
)

// A folder is the open folder of the store, with those inside it. It is closed when the cache and
// all requests have released it, so that no descriptor waits for the garbage collector.
type folder struct {
	users atomic.Int32 // the cache, requests and the session; 0 once it is closed

	top   *dir
	locks *dir

	// sessions is nil if it is missing and was opened without create.
	sessions *dir

	// owner is the user that owns top.
	owner uint32
}

// attributes are the properties of a file that are checked before it is used.
type attributes struct {
	mode     fs.FileMode
	size     int64
	links    uint64
	uid, gid uint32
}

// A folderCache keeps the folder open from request to request.
type folderCache struct {
	cached    atomic.Pointer[folder]
	checkedAt atomic.Int64 // when the path last led to the folder, in ns since processStart
	mu        sync.Mutex   // held while the folder is being opened
}

// checkInterval is how long requests may still use a folder that was moved away. Moving it frees
// its locks in any case.
const checkInterval = 10 * time.Millisecond

var processStart = time.Now()

// retainFolder returns the store's folder for one more user. It opens the folder when it is first
// needed, and again when its path leads to another one. Missing folders are made with create, and
// are fs.ErrNotExist otherwise. The caller must release the folder.
func (s *Store) retainFolder(create bool) (*folder, error) {
	if f := s.folders.retainCurrent(s); f != nil {
		return f, nil
	}
	s.folders.mu.Lock()
	defer s.folders.mu.Unlock()
	if s.closed.Load() {
		return nil, driver.ErrClosed
	}
	if f := s.folders.retainCurrent(s); f != nil {
		return f, nil
	}
	f, err := s.openFolders(create)
	if err != nil {
		return nil, err
	}
	if f.sessions != nil {
		f.users.Add(1)
		if previous := s.folders.cached.Swap(f); previous != nil {
			previous.release()
		}
	}
	return f, nil
}

// retainCurrent returns the cached folder, for one more user. It returns nil if there is none, or
// if the path of the store no longer leads to it.
func (c *folderCache) retainCurrent(s *Store) *folder {
	f := c.cached.Load()
	if f == nil || !f.retain() {
		return nil
	}
	if !f.isCurrent(s) {
		f.release()
		return nil
	}
	return f
}

// retain adds a user. It returns false if f is closed.
func (f *folder) retain() bool {
	for {
		n := f.users.Load()
		if n == 0 {
			return false
		}
		if f.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release removes a user, and closes f after the last one.
func (f *folder) release() {
	if f.users.Add(-1) == 0 {
		f.close()
	}
}

func (f *folder) close() {
	for _, d := range []*dir{f.top, f.locks, f.sessions} {
		if d != nil {
			d.close()
		}
	}
}

// isCurrent reports whether the path of the store leads to f, or has done so within the last
// checkInterval.
func (f *folder) isCurrent(s *Store) bool {
	now := int64(time.Since(processStart))
	if checked := s.folders.checkedAt.Load(); checked > 0 && now-checked < int64(checkInterval) {
		return true
	}
	if !f.locks.isAtPath(s.locksPath) {
		return false
	}
	s.folders.checkedAt.Store(now)
	return true
}

// invalidate makes the next request open the folder anew, if f is still the cached one.
func (c *folderCache) invalidate(f *folder) {
	if c.cached.CompareAndSwap(f, nil) {
		f.release()
	}
}

// close closes the folder at once. Requests that use it fail with driver.ErrClosed.
func (c *folderCache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.cached.Swap(nil); f != nil {
		f.close()
	}
}

// openFolders returns a folder with one user. On an error it leaves nothing open.
func (s *Store) openFolders(create bool) (_ *folder, err error) {
	top, err := openFolder(s.dir, create)
	if err != nil {
		return nil, s.wrapFolderErr(create, err)
	}
	f := &folder{top: top}
	f.users.Store(1)
	defer func() {
		if err != nil {
			f.release()
		}
	}()
	if kind, err := top.network(); err != nil || kind != "" && !s.allowNetwork {
		return nil, s.refuseNetwork(kind, err)
	}
	info, err := top.stat()
	if err != nil {
		return nil, s.wrapFolderErr(create, err)
	}
	f.owner = attributesOf(info).uid
	if f.locks, err = s.openInnerFolder(f, locksFolder, create); err != nil {
		return nil, err
	}
	f.sessions, err = s.openInnerFolder(f, sessionsFolder, create)
	if err != nil && (create || !errors.Is(err, fs.ErrNotExist)) {
		return nil, err
	}
	return f, nil
}

func (s *Store) wrapFolderErr(create bool, err error) error {
	switch {
	case !create && errors.Is(err, fs.ErrNotExist), driver.Permanent(err):
		return err
	case create:
		return driver.NotApplied(wrapErr("set up the folder", s.dir, err))
	}
	return driver.NotApplied(wrapErr("open", s.dir, err))
}

// openInnerFolder opens one of the folders inside the store's. With create it makes a missing one
// with the permissions of the store's folder.
func (s *Store) openInnerFolder(f *folder, name string, create bool) (*dir, error) {
	path := filepath.Join(s.dir, name)
	d, err := f.top.openSubfolder(name)
	for tries := 0; create && errors.Is(err, fs.ErrNotExist) && tries < 20; tries++ {
		like, statErr := f.top.stat()
		if statErr != nil {
			return nil, s.wrapFolderErr(create, statErr)
		}
		mode := like.Mode() & (fs.ModePerm | fs.ModeSticky | fs.ModeSetgid)
		if err := f.top.makeDir(name, mode, like); err != nil {
			return nil, s.wrapFolderErr(create, err)
		}
		d, err = f.top.openSubfolder(name)
	}
	if err != nil {
		if a, statErr := f.top.lstat(name); statErr == nil && !a.mode.IsDir() {
			return nil, corruptErr(path, "it is "+fileKind(a.mode)+" where a folder must be", "remove it, and see who has put it there")
		}
		return nil, s.wrapFolderErr(create, err)
	}
	info, err := d.stat()
	if err != nil {
		d.close()
		return nil, s.wrapFolderErr(create, err)
	}
	if err := f.checkOwner(path, attributesOf(info)); err != nil {
		d.close()
		return nil, err
	}
	d.refuseDevices = f.top.refuseDevices
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
	if a.uid == 0 || a.uid == f.owner || int(a.uid) == os.Geteuid() {
		return nil
	}
	info, err := f.top.stat() // Its owner or permissions may have changed.
	if err != nil {
		return driver.NotApplied(wrapErr("examine", f.top.name(), err))
	}
	now := attributesOf(info)
	if a.uid == now.uid || now.mode&0o022 != 0 {
		return nil
	}
	return corruptErr(path, fmt.Sprintf("it belongs to the user %d, and the folder, which nobody else may write, to the user %d", a.uid, now.uid),
		fmt.Sprintf("remove it, or chown it to %d if it is right", now.uid))
}

// errNotRegular means that there is something else in the place of a regular file.
var errNotRegular = errors.New("it is not a regular file")

// checkFile refuses a file that the store cannot have made. It returns errSwept for one that was
// deleted since it was opened.
func (f *folder) checkFile(path string, a attributes) error {
	const advice = "remove it, and see who has put it there"
	switch {
	case !a.mode.IsRegular():
		return corruptErr(path, errNotRegular.Error(), advice)
	case a.links == 0:
		return errSwept
	case a.links > 1:
		// Writing it could overwrite a private file of another user.
		return corruptErr(path, "it has another name besides (a hard link)", advice)
	}
	return f.checkOwner(path, a)
}

// openFile opens an existing file. If another user has just created it, and its permissions are not
// set yet, openFile waits for that.
func openFile(ctx context.Context, d *dir, name string, flags int) (*os.File, error) {
	const timeout, step = 3 * time.Second, time.Millisecond
	for waited := time.Duration(0); waited < timeout; waited += step {
		f, err := d.open(name, flags, 0)
		if !errors.Is(err, fs.ErrPermission) {
			return f, err
		}
		if !isIncomplete(d, name) {
			break
		}
		if err := retry.Sleep(ctx, step); err != nil {
			return nil, err
		}
	}
	return d.open(name, flags, 0) // It may have been incomplete before.
}

// isIncomplete reports whether the permissions of a file may not be set yet. A second call after
// the one that creates the file sets them, and the file is empty until then.
func isIncomplete(d *dir, name string) bool {
	a, err := d.lstat(name)
	return err == nil && a.mode.IsRegular() && a.size == 0
}

// A storeFile is a file of the store, and its location. It keeps the folder open until it is
// closed.
type storeFile struct {
	*os.File
	dir     *dir
	folder  *folder
	created bool // just created, and locked unless another process was faster
}

func (f storeFile) Close() error {
	defer f.folder.release()
	return f.File.Close()
}

// check returns the attributes of the file. It refuses a file that the store cannot have made, and
// returns errSwept for one that was deleted since it was opened.
func (f storeFile) check() (attributes, error) {
	info, err := f.Stat()
	if err != nil {
		return attributes{}, driver.NotApplied(wrapErr("read", f.Name(), err))
	}
	a := attributesOf(info)
	return a, f.folder.checkFile(f.Name(), a)
}

// openExisting opens a file, which is fs.ErrNotExist if it is missing, in the folder that in picks.
func (s *Store) openExisting(ctx context.Context, in func(*folder) *dir, name string, flags int) (storeFile, error) {
	f, err := s.retainFolder(false)
	if err != nil {
		return storeFile{}, err
	}
	file, err := openFile(ctx, in(f), name, flags)
	if err != nil {
		f.release()
		return storeFile{}, err
	}
	return storeFile{File: file, dir: in(f), folder: f}, nil
}

// openOrCreate opens a file for reading and writing, and creates it if necessary, in the folder
// that in picks. On an error the caller need not close anything. It first tries without O_CREAT,
// since Linux refuses that for the files of other users in a sticky folder (fs.protected_regular).
func (s *Store) openOrCreate(ctx context.Context, in func(*folder) *dir, name string) (storeFile, error) {
	for {
		f, err := s.retainFolder(true)
		if err != nil {
			return storeFile{}, err
		}
		file, err := openFile(ctx, in(f), name, os.O_RDWR)
		isNew := errors.Is(err, fs.ErrNotExist)
		if isNew {
			file, err = f.createFile(in(f), name)
		}
		if err == nil {
			return storeFile{File: file, dir: in(f), folder: f, created: isNew}, nil
		}
		if isNew && errors.Is(err, fs.ErrNotExist) {
			s.folders.invalidate(f) // The folder was deleted.
		}
		f.release()
		if !isNew || !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
			return storeFile{}, err
		}
		if err := ctx.Err(); err != nil {
			return storeFile{}, err
		}
	}
}

func topDir(f *folder) *dir   { return f.top }
func locksDir(f *folder) *dir { return f.locks }

// createFile creates a file that must not exist. The file is locked before others may open it. So
// another process finds it empty and unlocked after a crash only.
func (f *folder) createFile(d *dir, name string) (*os.File, error) {
	info, err := f.top.stat()
	if err != nil {
		return nil, err
	}
	file, err := d.open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	_ = tryLock(file, exclusive) // A process that was faster finds it empty, and leaves it.
	if err := chmodLike(file, fileMode(info.Mode()), info); err != nil {
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

// chmodLike gives a new file the permissions that its folder allows, whatever the umask.
func chmodLike(f *os.File, mode fs.FileMode, folder fs.FileInfo) error {
	if err := chownToFolderOwner(f, folder); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil || info.Mode().Perm() == mode {
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
