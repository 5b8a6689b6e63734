package main

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
)

// A snapshot is what the store listed at one moment.
type snapshot struct {
	at    time.Time
	locks []holdfast.Record
	errs  []error
}

func (w *watchCommand) takeSnapshot(ctx context.Context, client *holdfast.Client, last *snapshot) *snapshot {
	locks, errs := listLocks(ctx, client, w.prefix)
	p := &snapshot{time.Now(), locks, errs}
	if len(errs) > 0 {
		p.addMissing(ctx, client, last)
	}
	return p
}

// hasOnlyErrors reports whether the snapshot has no locks, and an error that does not concern a
// single record.
func (s *snapshot) hasOnlyErrors() bool {
	for _, err := range s.errs {
		if !errors.Is(err, holdfast.ErrCorrupt) {
			return len(s.locks) == 0
		}
	}
	return false
}

// addMissing looks up the locks that were in the last snapshot and are missing from a listing
// that had errors: missing does not mean free. A lock that cannot be looked up counts as
// unchanged.
func (s *snapshot) addMissing(ctx context.Context, client *holdfast.Client, last *snapshot) {
	seen := s.locksByName()
	var err error
	for _, rec := range last.locks {
		if _, ok := seen[rec.Name]; ok {
			continue
		}
		if !errors.Is(err, holdfast.ErrUnavailable) { // otherwise the next would fail as well, and take its time
			var now holdfast.Record
			if now, err = client.Lookup(ctx, rec.Name); err == nil {
				rec = now
			}
		}
		if !errors.Is(err, holdfast.ErrNotHeld) {
			s.locks = append(s.locks, rec)
		}
	}
	sortByName(s.locks)
}

func (s *snapshot) locksByName() map[string]holdfast.Record {
	locks := make(map[string]holdfast.Record, len(s.locks))
	for _, rec := range s.locks {
		locks[rec.Name] = rec
	}
	return locks
}
