package filestore

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// Lookup implements [olddriver.Store].
func (s direct) Lookup(ctx context.Context, name string) (olddriver.Record, bool, error) {
	if err := s.checkRequest(ctx, name); err != nil {
		return olddriver.Record{}, false, err
	}
	return s.lookupFile(ctx, fileName(name), name)
}

// lookupFile reads a record file. name is "" if the name of the lock is not known.
func (s *engine) lookupFile(ctx context.Context, file, name string) (olddriver.Record, bool, error) {
	f, err := s.openRecordFile(ctx, file, name, shared)
	if errors.Is(err, fs.ErrNotExist) {
		return olddriver.Record{}, false, nil
	}
	if err != nil {
		return olddriver.Record{}, false, err
	}
	defer f.Close()
	holds := s.liveHolds(&f.rec)
	return s.describeHolds(holds), len(holds) > 0, nil
}

// List implements [olddriver.Store].
func (s direct) List(ctx context.Context, prefix string) iter.Seq2[olddriver.Record, error] {
	return func(yield func(olddriver.Record, error) bool) {
		if s.closed.Load() {
			yield(olddriver.Record{}, driver.ErrClosed)
			return
		}
		files, err := s.recordFiles()
		if err != nil {
			yield(olddriver.Record{}, err)
			return
		}
		for _, file := range files {
			if !mayMatchPrefix(file, prefix) {
				continue
			}
			if err := ctx.Err(); err != nil {
				yield(olddriver.Record{}, driver.NotApplied(err))
				return
			}
			rec, held, err := s.lookupFile(ctx, file, "")
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
func (s *engine) recordFiles() ([]string, error) {
	f, err := s.currentFolder(false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, notApplied("open", s.locksPath, err)
	}
	files, err := f.locks.names()
	if err != nil {
		return nil, notApplied("list", s.locksPath, err)
	}
	return files, nil
}
