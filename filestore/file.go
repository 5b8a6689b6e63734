package filestore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// maxContents is how much of a file is read: the length of the tokens file.
const maxContents = slotCount * slotSize

// errSwept means that the file lost its name before it was locked.
var errSwept = errors.New("swept")

// A storeFile is the open file of a record, or of the tokens. It keeps the folder open until it is
// closed, which unlocks it. While it is exclusively locked, no other process reads or writes it.
type storeFile struct {
	*os.File
	folder  *folder
	dir     *dir // the one in folder that has the file
	created bool // just created, and locked unless another process was faster

	contents []byte // as it was when the file was locked; of a record the first page
	size     int64  // then

	// replaceable is set if the file contains nothing and can be replaced by a new one.
	replaceable bool

	rec record // of a record file
}

func (f *storeFile) Close() error {
	defer f.folder.release()
	return f.File.Close()
}

// lockAndRead locks and reads f.
func (f *storeFile) lockAndRead(ctx context.Context, how int) error {
	if err := lock(ctx, f.File, how); err != nil {
		return err
	}
	return f.read()
}

// read checks and reads f. It returns errSwept for a file that was deleted since it was opened, and
// refuses one that the store cannot have made.
func (f *storeFile) read() error {
	info, err := f.Stat()
	if err != nil {
		return notApplied("read", f.Name(), err)
	}
	const advice = "remove it, and see who has put it there"
	a := attributesOf(info)
	switch {
	case !a.mode.IsRegular():
		return corruptErr(f.Name(), errNotRegular.Error(), advice)
	case a.links == 0:
		return errSwept
	case a.links > 1:
		// Writing it could overwrite a private file of another user.
		return corruptErr(f.Name(), "it has another name besides (a hard link)", advice)
	}
	if err := f.folder.checkOwner(f.Name(), a); err != nil {
		return err
	}
	f.size = a.size
	f.contents = make([]byte, min(a.size, maxContents))
	n, err := f.ReadAt(f.contents, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return notApplied("read", f.Name(), err)
	}
	f.contents = f.contents[:n]
	f.replaceable = !f.created && a.disposable() && isEmpty(f.contents)
	return nil
}

// isEmpty reports whether there is nothing in a file, or zeros only, which a power loss or an
// interrupted creation leaves.
func isEmpty(contents []byte) bool { return len(bytes.Trim(contents, "\x00")) == 0 }

// openFile opens an existing file. If another user has just created it, and its permissions are not
// set yet, openFile waits for that. To a caller that only reads, such a file is missing.
func openFile(ctx context.Context, d *dir, name string, flags int) (*os.File, error) {
	const timeout, step = 3 * time.Second, time.Millisecond
	for waited := time.Duration(0); ; waited += step {
		f, err := d.open(name, flags, 0)
		if !errors.Is(err, fs.ErrPermission) || waited >= timeout {
			return f, err
		}
		// A second call after the one that creates a file sets its permissions. It is empty until
		// then.
		if a, err := d.lstat(name); err != nil || !a.mode.IsRegular() || a.size > 0 {
			return d.open(name, flags, 0) // It may have been so before.
		}
		if flags == os.O_RDONLY {
			return nil, fs.ErrNotExist
		}
		if err := retry.Sleep(ctx, step); err != nil {
			return nil, err
		}
	}
}

// openExisting opens a file in locksFolder, or in the store's folder if where is "". The error is
// fs.ErrNotExist if the file is missing.
func (s *Store) openExisting(ctx context.Context, where, name string, flags int) (*storeFile, error) {
	folder, err := s.retainFolder(false)
	if err != nil {
		return nil, err
	}
	f, err := openFile(ctx, folder.dirOf(where), name, flags)
	if err != nil {
		folder.release()
		return nil, notApplied("open", filepath.Join(s.dir, where, name), err)
	}
	return &storeFile{File: f, folder: folder, dir: folder.dirOf(where)}, nil
}

// openOrCreate is openExisting for reading and writing. It creates a missing file. It first tries
// without O_CREAT, since Linux refuses that for the files of other users in a sticky folder
// (fs.protected_regular).
func (s *Store) openOrCreate(ctx context.Context, where, name string) (*storeFile, error) {
	for {
		folder, err := s.retainFolder(true)
		if err != nil {
			return nil, err
		}
		d := folder.dirOf(where)
		f, err := openFile(ctx, d, name, os.O_RDWR)
		isNew := errors.Is(err, fs.ErrNotExist)
		if isNew {
			f, err = folder.createFile(d, name)
		}
		if err == nil {
			return &storeFile{File: f, folder: folder, dir: d, created: isNew}, nil
		}
		wasDeleted := isNew && errors.Is(err, fs.ErrNotExist)
		if wasDeleted {
			s.invalidate(folder)
		}
		folder.release()
		if wasDeleted || isNew && errors.Is(err, fs.ErrExist) {
			err = ctx.Err()
		}
		if err != nil {
			return nil, notApplied("open", filepath.Join(s.dir, where, name), err)
		}
	}
}

// lockOrCreate opens, exclusively locks and reads a file, and creates it if necessary. If another
// process has the file locked, and giveUp, which may be nil, reports true, lockOrCreate returns the
// file as it is, not locked.
func (s *Store) lockOrCreate(ctx context.Context, where, name string, giveUp func(*storeFile) bool) (f *storeFile, locked bool, err error) {
	for {
		f, err := s.openOrCreate(ctx, where, name)
		if err != nil {
			return nil, false, err
		}
		err = tryLock(f.File, exclusive)
		if errors.Is(err, errLocked) && giveUp != nil && giveUp(f) {
			return f, false, nil
		}
		if err == nil {
			err = f.read()
		} else {
			err = f.lockAndRead(ctx, exclusive)
		}
		if err == nil && !f.replaceable {
			return f, true, nil
		}
		if err == nil {
			// It is not written, since it may be any file: another user could have given it this
			// name as a second one.
			err = notApplied("replace", f.Name(), f.dir.remove(name))
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				err = errSwept
			}
		}
		f.Close()
		if errors.Is(err, errSwept) {
			err = ctx.Err()
		}
		if err != nil {
			return nil, false, driver.NotApplied(err)
		}
	}
}

// flush makes a file and its name survive a power loss.
func (s *Store) flush(f *storeFile) error {
	err := s.host.flush(f.File)
	if err == nil {
		err = f.dir.sync()
	}
	return wrapErr("flush", f.Name(), err)
}
