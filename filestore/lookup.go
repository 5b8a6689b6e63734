package filestore

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// Lookup implements [driver.Store].
func (s *Store) Lookup(ctx context.Context, name string) (driver.Record, bool, error) {
	if err := s.admit(ctx, name); err != nil {
		return driver.Record{}, false, err
	}
	return s.lookAt(ctx, s.recordPath(name), name)
}

// lookAt looks at a record file; name is "" if the name of the lock is not
// known.
func (s *Store) lookAt(ctx context.Context, path, name string) (driver.Record, bool, error) {
	e, err := s.findAt(ctx, path, name, shared)
	if errors.Is(err, fs.ErrNotExist) {
		return driver.Record{}, false, nil
	}
	if err != nil {
		return driver.Record{}, false, err
	}
	defer e.close()
	if !s.inTheWay(&e.rec) {
		return driver.Record{}, false, nil
	}
	return e.rec.public(&s.host), true, nil
}

// List implements [driver.Store].
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		if s.closed.Load() {
			yield(driver.Record{}, driver.ErrClosed)
			return
		}
		files, err := s.recordFiles()
		if err != nil {
			yield(driver.Record{}, err)
			return
		}
		for _, file := range files {
			if !mayBegin(file, prefix) {
				continue
			}
			if err := ctx.Err(); err != nil {
				yield(driver.Record{}, notApplied(err))
				return
			}
			rec, held, err := s.lookAt(ctx, filepath.Join(s.dir, locksFolder, file), "")
			if err == nil && !(held && strings.HasPrefix(rec.Name, prefix)) {
				continue
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

// recordFiles returns the names of all files in the folder of records.
func (s *Store) recordFiles() ([]string, error) {
	path := filepath.Join(s.dir, locksFolder)
	folder, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, notApplied(fault("list", path, err))
	}
	defer folder.Close()
	files, err := folder.Readdirnames(-1)
	if err != nil {
		return nil, notApplied(fault("list", path, err))
	}
	return files, nil
}
