package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

// peek reads a record without locking it. If the record is written meanwhile, the result may be
// half the old one and half the new one. As a rule that is not a valid record. If it is valid, it
// is used only where the outcome of a moment earlier would do as well.
func (s *engine) peek(f *os.File) (record, error) {
	data := make([]byte, recordLimit)
	n, err := f.ReadAt(data, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return record{}, err
	}
	rec, err := decodeRecord(data[:n])
	if err == nil {
		err = rec.readHolds(f, &s.host)
	}
	return rec, err
}

// openRecord opens, locks and reads the record of a name. It never creates one: the error is
// fs.ErrNotExist then.
func (s *engine) openRecord(ctx context.Context, name string, how int) (*storeFile, error) {
	return s.openRecordFile(ctx, fileName(name), name, how)
}

// openRecordFile is openRecord for a file. If name is "", the lock's name is not known, and any is
// accepted. A caller that only reads uses a shared lock.
func (s *engine) openRecordFile(ctx context.Context, file, name string, how int) (*storeFile, error) {
	flags := os.O_RDWR
	if how == shared {
		flags = os.O_RDONLY
	}
	for {
		f, err := s.openExisting(ctx, locksFolder, file, flags)
		if err != nil {
			return nil, err
		}
		if err = f.lockAndRead(ctx, how); err == nil {
			err = f.decode(name, &s.host)
		}
		if err == nil {
			return f, nil
		}
		f.Close()
		if !errors.Is(err, errSwept) {
			return nil, err
		}
	}
}

// decode sets the record of f, which must be that of name.
func (f *storeFile) decode(name string, h *host) (err error) {
	if len(f.contents) > recordLimit && isWholePage(f.contents[:recordLimit]) {
		f.contents = f.contents[:recordLimit]
	}
	f.rec, err = decodeRecord(f.contents)
	if err == nil {
		err = f.rec.readHolds(f.File, h)
	}
	switch {
	case err != nil:
	case f.rec.Token == 0:
		f.rec.Name = name // a new file
	case printable(f.rec.Name) != f.rec.Name:
		err = errors.New("its name has control characters")
	case name != "" && f.rec.Name != name || fileName(f.rec.Name) != filepath.Base(f.Name()):
		err = errors.New("it is the record of another name")
	}
	if err != nil {
		return corruptErr(f.Name(), err.Error(), "look at it, and delete it when nobody holds that lock")
	}
	return nil
}

// isWholePage reports whether a page is that of a file which may go on behind it.
func isWholePage(page []byte) bool {
	end := page[len(page)-1]
	return (end == ' ' || end == '\n') && bytes.IndexByte(page, '\n') >= 0 || isEmpty(page)
}

// write replaces the record by one write. If that fails, it restores the previous contents. The
// error shows whether that succeeded.
func (f *storeFile) write(rec record) error {
	size := min(len(f.contents), recordLimit)
	var data, behind []byte
	var err error
	if rec.Tolerant == nil {
		data, err = rec.encodeLine(size)
	} else {
		data, behind, err = rec.encodeTolerant(size, f.rec.Tolerant)
	}
	if err != nil {
		return err
	}
	if err = f.writeBehind(rec.Tolerant, behind); err == nil {
		_, err = f.WriteAt(data, 0)
	}
	if err != nil {
		failed := wrapErr("write", f.Name(), err)
		if err := f.restore(); err != nil {
			return fmt.Errorf("%w; and what was there before cannot be put back: %w", failed, err)
		}
		return driver.NotApplied(failed)
	}
	f.rec, f.contents = rec, data
	switch {
	case behind != nil:
		f.size = max(f.size, rec.Tolerant.At+rec.Tolerant.Size)
	case f.size > recordLimit && f.Truncate(recordLimit) == nil: // The rest does not count any more.
		f.size = recordLimit
	default:
		f.size = max(f.size, int64(len(data)))
	}
	return nil
}

// writeBehind writes the lines of holds behind the page, which is filled up before. Nothing points
// to them until the page is written.
func (f *storeFile) writeBehind(t *tolerantHolds, lines []byte) error {
	if lines == nil {
		return nil
	}
	if n := len(f.contents); n > 0 && n < recordLimit {
		if _, err := f.WriteAt(padded(nil, recordLimit-n), int64(n)); err != nil {
			return err
		}
	}
	_, err := f.WriteAt(lines, t.At)
	return err
}

// restore undoes a failed write. It succeeds if the file has its previous contents afterwards: on a
// full disk a part of a write can succeed, and be enough.
func (f *storeFile) restore() error {
	_, writeErr := f.WriteAt(f.contents, 0)
	truncateErr := f.Truncate(f.size)
	now := make([]byte, f.size+1)
	if f.size > recordLimit {
		now = now[:len(f.contents)]
	}
	n, err := f.ReadAt(now, 0)
	whole := f.size > recordLimit || errors.Is(err, io.EOF)
	if whole && bytes.Equal(now[:n], f.contents) {
		return nil
	}
	return errors.Join(writeErr, truncateErr, errors.New("it has other contents now"))
}

// isHeld reports whether an exclusive hold or keep reserves the name. A hold of a dead process does
// not.
func (s *engine) isHeld(rec *record) bool {
	if !rec.isUnexpired(&s.host) {
		return false
	}
	return rec.State == stateKept || !s.isSessionDead(rec.Session)
}

// checkRequest checks the preconditions of every request.
func (s *engine) checkRequest(ctx context.Context, name string) error {
	if s.closed.Load() {
		return driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return driver.NotApplied(err)
	}
	if name == "" || len(name) > driver.MaxName || !utf8.ValidString(name) {
		return fmt.Errorf("%w: a name is 1 to %d bytes of UTF-8", driver.ErrInvalid, driver.MaxName)
	}
	return nil
}
