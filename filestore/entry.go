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

// An entry is a record file, open and locked, and the record in it. While it is
// exclusively locked, nobody else reads or writes it.
type entry struct {
	file *os.File
	rec  record
	size int // of the file
	raw  []byte
}

// take opens and exclusively locks the record of a name, and creates its file if
// need be. If somebody else has it locked it takes a glance: should refuses say
// that the name is not to be had, the record is returned as it is, not locked.
// So the many who come in vain do not queue up before the one who is to release
// the name.
func (s *Store) take(ctx context.Context, name string, refuses func(*record) bool) (e *entry, refused bool, err error) {
	path := s.recordPath(name)
	for {
		f, err := s.openOrCreate(ctx, path)
		if err != nil {
			return nil, false, notApplied(fault("open", path, err))
		}
		if tryLock(f, exclusive) == nil {
			e, err = s.readLocked(f, name)
		} else {
			rec, unclear := glance(f)
			if unclear == nil && rec.Name == name && refuses(&rec) {
				return &entry{file: f, rec: rec}, true, nil
			}
			e, err = s.readEntry(ctx, f, name, exclusive)
		}
		if !errors.Is(err, errSwept) {
			return e, false, err
		}
	}
}

// glance reads a record without locking it. Being written meanwhile it may be
// half the old one and half the new: then it is no record at all as a rule, and
// otherwise of use only to those who could as well have come a moment earlier.
func glance(f *os.File) (record, error) {
	data := make([]byte, recordLimit)
	n, err := f.ReadAt(data, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return record{}, err
	}
	return decodeRecord(data[:n])
}

// find is take for a name that may have no record, and never creates one:
// fs.ErrNotExist then. Whoever only wants to read locks it as shared.
func (s *Store) find(ctx context.Context, name string, how lockKind) (*entry, error) {
	return s.findAt(ctx, s.recordPath(name), name, how)
}

// findAt is find where the name of the lock is not known: any if it is "".
func (s *Store) findAt(ctx context.Context, path, name string, how lockKind) (*entry, error) {
	flags := os.O_RDWR
	if how == shared {
		flags = os.O_RDONLY
	}
	for {
		f, err := openFile(ctx, path, flags)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fs.ErrNotExist
		}
		if err != nil {
			return nil, notApplied(fault("open", path, err))
		}
		e, err := s.readEntry(ctx, f, name, how)
		if !errors.Is(err, errSwept) {
			return e, err
		}
	}
}

// errSwept means that the file lost its name before it could be locked.
var errSwept = errors.New("swept")

// readEntry locks and reads an open record file, or closes it.
func (s *Store) readEntry(ctx context.Context, f *os.File, name string, how lockKind) (*entry, error) {
	if err := lock(ctx, f, how); err != nil {
		f.Close()
		return nil, err
	}
	return s.readLocked(f, name)
}

// readLocked reads a record file that is locked, or closes it.
func (s *Store) readLocked(f *os.File, name string) (*entry, error) {
	e := &entry{file: f}
	if err := e.read(name); err != nil {
		f.Close()
		return nil, err
	}
	if e.size == 0 {
		s.repair(f)
	}
	return e, nil
}

func (e *entry) read(name string) error {
	info, err := e.file.Stat()
	if err != nil {
		return notApplied(fault("read", e.path(), err))
	}
	if !info.Mode().IsRegular() {
		return e.corrupt(errors.New("it is not a regular file"))
	}
	if !linked(info) {
		return errSwept
	}
	e.size = int(min(info.Size(), recordLimit+1))
	e.raw = make([]byte, e.size)
	if n, err := e.file.ReadAt(e.raw, 0); err != nil && !errors.Is(err, io.EOF) {
		return notApplied(fault("read", e.path(), err))
	} else if n < e.size {
		e.raw = e.raw[:n]
	}
	if e.rec, err = decodeRecord(e.raw); err != nil {
		return e.corrupt(err)
	}
	return e.checkName(name)
}

// checkName makes sure that the record is that of the name, and in its place.
func (e *entry) checkName(name string) error {
	if e.rec.Name == "" && e.rec.Token == 0 {
		e.rec.Name = name // a new file
		return nil
	}
	if name != "" && e.rec.Name != name || fileName(e.rec.Name) != filepath.Base(e.path()) {
		return e.corrupt(errors.New("it is the record of another name"))
	}
	return nil
}

func (e *entry) path() string { return e.file.Name() }

func (e *entry) corrupt(why error) error {
	return corrupt(e.path(), why.Error(), "look at it, and delete it when nobody holds that lock")
}

// write replaces the record by one write. If that fails, it puts back what was
// there; the error says so if it could.
func (e *entry) write(rec record) error {
	data, err := rec.encode(e.size)
	if err != nil {
		return err
	}
	if _, err := e.file.WriteAt(data, 0); err != nil {
		failed := fault("write", e.path(), err)
		if err := e.putBack(); err != nil {
			return fmt.Errorf("%w; and what was there before cannot be put back: %w", failed, err)
		}
		return notApplied(failed)
	}
	e.rec, e.raw, e.size = rec, data, len(data)
	return nil
}

// putBack undoes what a failed write may have written. What counts is what is in
// the file then: on a full disk a part of it can be written, and is enough.
func (e *entry) putBack() error {
	_, writeErr := e.file.WriteAt(e.raw, 0)
	truncateErr := e.file.Truncate(int64(len(e.raw)))
	now := make([]byte, len(e.raw)+1)
	n, err := e.file.ReadAt(now, 0)
	if errors.Is(err, io.EOF) && bytes.Equal(now[:n], e.raw) {
		return nil
	}
	return errors.Join(writeErr, truncateErr, errors.New("it has other contents now"))
}

// flush makes the record outlast a power loss.
func (s *Store) flush(e *entry) error {
	if err := s.host.flush(e.file); err != nil {
		return fault("flush", e.path(), err)
	}
	if err := syncFolder(filepath.Dir(e.path())); err != nil {
		return fault("flush", filepath.Dir(e.path()), err)
	}
	return nil
}

// close unlocks the record, too.
func (e *entry) close() { e.file.Close() }

// inTheWay reports whether a hold or keep keeps others from the name. A holder
// whose process is dead does not.
func (s *Store) inTheWay(rec *record) bool {
	if !rec.lasts(&s.host) {
		return false
	}
	return rec.State == stateKept || !s.isDead(rec.Session)
}

// admit checks what has to be so before any request is carried out.
func (s *Store) admit(ctx context.Context, name string) error {
	if s.closed.Load() {
		return driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return notApplied(err)
	}
	return checkLockName(name)
}
