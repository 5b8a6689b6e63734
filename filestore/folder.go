package filestore

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	locksFolder    = "locks"
	sessionsFolder = "sessions"
	tokensFile     = "tokens"
)

func (s *Store) recordPath(name string) string {
	return filepath.Join(s.dir, locksFolder, fileName(name))
}

// openFile opens a file that is there. If it has just been made by another user,
// who has yet to give it its permissions, it waits for that.
func openFile(ctx context.Context, path string, flags int) (*os.File, error) {
	const patience, step = 3 * time.Second, time.Millisecond
	for waited := time.Duration(0); waited < patience; waited += step {
		f, err := os.OpenFile(path, flags|careful, 0)
		if !errors.Is(err, fs.ErrPermission) {
			return f, err
		}
		if !isHalfMade(path) {
			break
		}
		if err := pause(ctx, step); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, flags|careful, 0) // It may have been half made before.
}

// isHalfMade reports whether a file may be about to get its permissions: that
// takes a second call after the one that creates it, and then it is still empty.
func isHalfMade(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular() && info.Size() == 0
}

// openOrCreate opens a file for reading and writing and creates it if need be.
// It first tries without O_CREAT, since Linux refuses that for the files of
// other users in a sticky folder (fs.protected_regular).
func (s *Store) openOrCreate(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := openFile(ctx, path, os.O_RDWR)
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		f, err = s.create(path)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// create makes a file that must not be there yet, and the folders above it.
func (s *Store) create(path string) (*os.File, error) {
	f, err := s.createIn(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if err := s.makeFolders(); err != nil {
		return nil, fault("set up the folder", s.dir, err)
	}
	return s.createIn(path)
}

func (s *Store) createIn(path string) (*os.File, error) {
	folder, err := os.Stat(s.dir)
	if err != nil {
		return nil, err
	}
	mode := folder.Mode() & 0o666
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|careful, mode)
	if err != nil {
		return nil, err
	}
	if err := grantAll(f, mode, folder); err != nil {
		f.Close()
		os.Remove(path)
		return nil, err
	}
	return f, nil
}

// grantAll gives a new file what its folder allows, whatever the umask.
func grantAll(f *os.File, mode fs.FileMode, folder fs.FileInfo) error {
	if err := adopt(f.Name(), folder); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil || info.Mode().Perm() == mode {
		return err
	}
	return f.Chmod(mode)
}

// repair does the same for an empty file, whose maker may have been killed
// before it had. Only the owner of the file can.
func (s *Store) repair(f *os.File) {
	if folder, err := os.Stat(s.dir); err == nil {
		_ = grantAll(f, folder.Mode()&0o666, folder)
	}
}

// makeFolders makes the store's folder and those inside it that are missing.
func (s *Store) makeFolders() error {
	if err := makeAll(s.dir); err != nil {
		return err
	}
	folder, err := os.Stat(s.dir)
	if err != nil {
		return err
	}
	for _, name := range []string{locksFolder, sessionsFolder} {
		if err := makeInside(filepath.Join(s.dir, name), folder); err != nil {
			return err
		}
	}
	return nil
}

// existing returns path, or the nearest folder above it that is there.
func existing(path string) string {
	for {
		_, err := os.Stat(path)
		if !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// makeAll is os.MkdirAll for folders that must outlast a power loss, and that
// root may make for somebody else.
func makeAll(path string) error {
	parent := filepath.Dir(path)
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeAll(parent); err != nil {
			return err
		}
		err = os.Mkdir(path, 0o700)
	}
	if err != nil {
		return unlessFolder(path, err)
	}
	info, err := os.Stat(parent)
	if err != nil {
		return err
	}
	return errors.Join(adopt(path, info), syncFolder(parent))
}

// unlessFolder returns err, unless there is a folder, made by somebody else.
func unlessFolder(path string, err error) error {
	if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
		return nil
	}
	return err
}

// makeInside makes a folder with the permissions of the store's folder. It gets
// its name when it has them, so that nobody finds it half made.
func makeInside(path string, folder fs.FileInfo) error {
	if unlessFolder(path, fs.ErrNotExist) == nil {
		return nil
	}
	temp, err := os.MkdirTemp(filepath.Dir(path), filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp)
	mode := folder.Mode() & (fs.ModePerm | fs.ModeSticky | fs.ModeSetgid)
	if err := errors.Join(adopt(temp, folder), os.Chmod(temp, mode)); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return unlessFolder(path, err)
	}
	return syncFolder(filepath.Dir(path))
}
