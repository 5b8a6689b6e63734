package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-go/holdfast/driver"
)

// A recordFile is an open record file, and the record in it. It is locked, unless lockForUpdate
// has returned it as refused. While it is exclusively locked, no other process reads or writes it.
type recordFile struct {
	storeFile
	rec      record
	size     int // size of the file
	contents []byte

	// replaceable is set if the file contains nothing and can be replaced by a new one.
	replaceable bool
}

// lockForUpdate opens and exclusively locks the record of a name, and creates its file if
// necessary. If the file is locked by another process, lockForUpdate peeks: if refuses reports that
// the name is not available, it returns the record as read, without locking it. Failed
// attempts therefore do not queue ahead of the holder that is to release the name.
func (s *Store) lockForUpdate(ctx context.Context, name string, refuses func(*record) bool) (rf *recordFile, refused bool, err error) {
	for {
		f, err := s.openOrCreate(ctx, locksDir, fileName(name))
		if err != nil {
			return nil, false, wrapOpenErr(s.recordPath(name), err)
		}
		if tryLock(f.File, exclusive) == nil {
			rf, err = readLocked(f, name)
		} else {
			rec, peekErr := peek(f.File)
			if peekErr == nil && rec.Name == name && refuses(&rec) {
				return &recordFile{storeFile: f, rec: rec}, true, nil
			}
			rf, err = lockAndRead(ctx, f, name, exclusive)
		}
		if err == nil && rf.replaceable {
			// It is not written, since it may be any file: another user could have given it this
			// name as a second one.
			if err = rf.dir.remove(fileName(name)); err == nil || errors.Is(err, fs.ErrNotExist) {
				err = errSwept
			}
			rf.close()
		}
		if !errors.Is(err, errSwept) {
			return rf, false, err
		}
		if err := ctx.Err(); err != nil {
			return nil, false, driver.NotApplied(err)
		}
	}
}

// wrapOpenErr returns the error for a file of the store that cannot be opened.
func wrapOpenErr(path string, err error) error {
	if driver.Permanent(err) {
		return err
	}
	return driver.NotApplied(wrapErr("open", path, err))
}

// peek reads a record without locking it. If the record is written meanwhile, the result may be
// half the old one and half the new one. As a rule that is not a valid record. If it is valid, it
// is used only where the outcome of a moment earlier would do as well.
func peek(f *os.File) (record, error) {
	data := make([]byte, recordLimit)
	n, err := f.ReadAt(data, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return record{}, err
	}
	return decodeRecord(data[:n])
}

// openLocked is lockForUpdate for a name that may have no record. It never creates one: it returns
// fs.ErrNotExist then. A caller that only reads uses a shared lock.
func (s *Store) openLocked(ctx context.Context, name string, how lockKind) (*recordFile, error) {
	return s.openLockedAt(ctx, fileName(name), name, how)
}

// openLockedAt is openLocked for a record file. If name is "", the lock's name is not known, and
// any is accepted.
func (s *Store) openLockedAt(ctx context.Context, file, name string, how lockKind) (*recordFile, error) {
	for {
		f, err := s.openRecordFile(ctx, file, how)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fs.ErrNotExist
		}
		if err != nil {
			return nil, wrapOpenErr(filepath.Join(s.locksPath, file), err)
		}
		rf, err := lockAndRead(ctx, f, name, how)
		if !errors.Is(err, errSwept) {
			return rf, err
		}
	}
}

// openRecordFile opens an existing record file. An empty file that is to be read only, and cannot
// be opened, counts as missing.
func (s *Store) openRecordFile(ctx context.Context, file string, how lockKind) (storeFile, error) {
	if how == exclusive {
		return s.openExisting(ctx, locksDir, file, os.O_RDWR)
	}
	f, err := s.retainFolder(false)
	if err != nil {
		return storeFile{}, err
	}
	o := storeFile{dir: f.locks, folder: f}
	if o.File, err = f.locks.open(file, os.O_RDONLY, 0); err != nil {
		if errors.Is(err, fs.ErrPermission) && isIncomplete(f.locks, file) {
			err = fs.ErrNotExist
		}
		f.release()
		return storeFile{}, err
	}
	return o, nil
}

// openForPeek opens a record file for peek.
func (s *Store) openForPeek(file string) (*os.File, error) {
	f, err := s.retainFolder(false)
	if err != nil {
		return nil, err
	}
	defer f.release()
	return f.locks.open(file, os.O_RDONLY, 0)
}

// errSwept means that the file lost its name before it was locked.
var errSwept = errors.New("swept")

// lockAndRead locks and reads an open record file. It closes the file on an error.
func lockAndRead(ctx context.Context, f storeFile, name string, how lockKind) (*recordFile, error) {
	if err := lock(ctx, f.File, how); err != nil {
		f.Close()
		return nil, err
	}
	return readLocked(f, name)
}

// readLocked reads a record file that is locked. It closes the file on an error.
func readLocked(f storeFile, name string) (*recordFile, error) {
	rf := &recordFile{storeFile: f}
	if err := rf.read(name); err != nil {
		f.Close()
		return nil, err
	}
	return rf, nil
}

func (rf *recordFile) read(name string) error {
	a, err := rf.check()
	if err != nil {
		return err
	}
	rf.size = int(min(a.size, recordLimit+1))
	rf.contents = make([]byte, rf.size)
	if n, err := rf.ReadAt(rf.contents, 0); err != nil && !errors.Is(err, io.EOF) {
		return driver.NotApplied(wrapErr("read", rf.path(), err))
	} else if n < rf.size {
		rf.contents = rf.contents[:n]
	}
	if rf.rec, err = decodeRecord(rf.contents); err != nil {
		return rf.corruptErr(err)
	}
	rf.replaceable = rf.rec.Token == 0 && !rf.created && a.disposable()
	return rf.checkName(name)
}

// checkName checks that the record belongs to name, and is in the file of that name.
func (rf *recordFile) checkName(name string) error {
	if rf.rec.Name == "" && rf.rec.Token == 0 {
		rf.rec.Name = name // a new file
		return nil
	}
	if printable(rf.rec.Name) != rf.rec.Name {
		return rf.corruptErr(errors.New("its name has control characters"))
	}
	if name != "" && rf.rec.Name != name || fileName(rf.rec.Name) != filepath.Base(rf.path()) {
		return rf.corruptErr(errors.New("it is the record of another name"))
	}
	return nil
}

func (rf *recordFile) path() string { return rf.Name() }

func (rf *recordFile) corruptErr(why error) error {
	return corruptErr(rf.path(), why.Error(), "look at it, and delete it when nobody holds that lock")
}

// write replaces the record by one write. If that fails, it restores the previous contents. The
// error shows whether that succeeded.
func (rf *recordFile) write(rec record) error {
	data, err := rec.encodeLine(rf.size)
	if err != nil {
		return err
	}
	if _, err := rf.WriteAt(data, 0); err != nil {
		failed := wrapErr("write", rf.path(), err)
		if err := rf.restore(); err != nil {
			return fmt.Errorf("%w; and what was there before cannot be put back: %w", failed, err)
		}
		return driver.NotApplied(failed)
	}
	rf.rec, rf.contents, rf.size = rec, data, len(data)
	return nil
}

// restore undoes a failed write. It succeeds if the file has its previous contents afterwards: on a
// full disk a part of a write can succeed, and be enough.
func (rf *recordFile) restore() error {
	_, writeErr := rf.WriteAt(rf.contents, 0)
	truncateErr := rf.Truncate(int64(len(rf.contents)))
	now := make([]byte, len(rf.contents)+1)
	n, err := rf.ReadAt(now, 0)
	if errors.Is(err, io.EOF) && bytes.Equal(now[:n], rf.contents) {
		return nil
	}
	return errors.Join(writeErr, truncateErr, errors.New("it has other contents now"))
}

// flushRecord makes the record survive a power loss.
func (s *Store) flushRecord(rf *recordFile) error {
	if err := s.host.flush(rf.File); err != nil {
		return wrapErr("flush", rf.path(), err)
	}
	if err := rf.dir.sync(); err != nil {
		return wrapErr("flush", s.locksPath, err)
	}
	return nil
}

// close closes the file, which unlocks the record.
func (rf *recordFile) close() { rf.Close() }

// isHeld reports whether a hold or keep reserves the name. A hold of a dead process does not.
func (s *Store) isHeld(rec *record) bool {
	if !rec.isUnexpired(&s.host) {
		return false
	}
	return rec.State == stateKept || !s.isSessionDead(rec.Session)
}

// checkRequest checks the preconditions of every request.
func (s *Store) checkRequest(ctx context.Context, name string) error {
	if s.closed.Load() {
		return driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return driver.NotApplied(err)
	}
	return checkLockName(name)
}
