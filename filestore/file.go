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

// A storeFile is the open file of a record, or of the tokens. Closing it unlocks
// it. While it is exclusively locked, no other process reads or writes it.
type storeFile struct {
	*os.File
	folder *folder
	dir    *dir // the one in folder that has the file

	contents []byte // as it was when the file was locked; of a record the first page
	size     int64  // then

	rec record // of a record file
}

// lockAndRead locks and reads f.
func (f *storeFile) lockAndRead(ctx context.Context, how int) error {
	if err := lock(ctx, f.File, how); err != nil {
		return err
	}
	return f.read()
}

// read reads f. It returns errSwept for a file that was deleted since it was opened.
func (f *storeFile) read() error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return notApplied("read", f.Name(), err)
	case !info.Mode().IsRegular():
		return corruptErr(f.Name(), "it is not a regular file", "remove it, and see who has put it there")
	case isUnlinked(info):
		return errSwept
	}
	f.size = info.Size()
	f.contents = make([]byte, min(f.size, maxContents))
	n, err := f.ReadAt(f.contents, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return notApplied("read", f.Name(), err)
	}
	f.contents = f.contents[:n]
	if isEmpty(f.contents) {
		_ = f.folder.setMode(f.File) // Its maker may have been killed before that.
	}
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
		f, err := d.OpenFile(name, flags, 0)
		if !errors.Is(err, fs.ErrPermission) || waited >= timeout {
			return f, err
		}
		// A new file is empty, and gets its permissions by a second call of its maker.
		if info, err := d.Stat(name); err != nil || !info.Mode().IsRegular() || info.Size() > 0 {
			return d.OpenFile(name, flags, 0) // It may have been so before.
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
func (s *engine) openExisting(ctx context.Context, where, name string, flags int) (*storeFile, error) {
	for {
		folder, err := s.currentFolder(false)
		if err != nil {
			return nil, err
		}
		f, err := openFile(ctx, folder.dirOf(where), name, flags)
		if errors.Is(err, os.ErrClosed) {
			continue
		}
		if err != nil {
			return nil, notApplied("open", filepath.Join(s.dir, where, name), err)
		}
		return &storeFile{File: f, folder: folder, dir: folder.dirOf(where)}, nil
	}
}

// openOrCreate is openExisting for reading and writing. It creates a missing file.
func (s *engine) openOrCreate(ctx context.Context, where, name string) (*storeFile, error) {
	for {
		folder, err := s.currentFolder(true)
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
			return &storeFile{File: f, folder: folder, dir: d}, nil
		}
		wasDeleted := isNew && errors.Is(err, fs.ErrNotExist) || errors.Is(err, os.ErrClosed)
		if wasDeleted {
			s.invalidate(folder)
		}
		if wasDeleted || isNew && errors.Is(err, fs.ErrExist) {
			err = ctx.Err()
		}
		if err != nil {
			return nil, notApplied("open", filepath.Join(s.dir, where, name), err)
		}
	}
}

// lockOrCreate opens, exclusively locks and reads a file, and creates it if necessary.
func (s *engine) lockOrCreate(ctx context.Context, where, name string) (*storeFile, error) {
	for {
		f, err := s.openOrCreate(ctx, where, name)
		if err != nil {
			return nil, err
		}
		if err = f.lockAndRead(ctx, exclusive); err == nil {
			return f, nil
		}
		f.Close()
		if errors.Is(err, errSwept) {
			err = ctx.Err()
		}
		if err != nil {
			return nil, driver.NotApplied(err)
		}
	}
}

// flush makes a file and its name survive a power loss.
func (s *engine) flush(f *storeFile) error {
	err := s.host.flush(f.File)
	if err == nil {
		err = f.dir.sync()
	}
	return wrapErr("flush", f.Name(), err)
}
