package filestore

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// idleTime is how long a free record stays before it is swept.
const idleTime = 10 * time.Minute

// startSweep sweeps in the background, unless a sweep is already running. It is called after a
// change of the tokens file, which is by about one process in ten minutes.
func (s *engine) startSweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() || s.sweeping.Swap(true) {
		return
	}
	s.sweeps.Go(func() {
		defer s.sweeping.Store(false)
		s.sweepIdle(s.lifetime, idleTime)
	})
}

// sweepIdle deletes the files of names that have been free for as long as idle, and the files of
// dead sessions. It leaves alone what it may not delete or cannot read.
func (s *engine) sweepIdle(ctx context.Context, idle time.Duration) {
	// A dead session must exist as long as a record names it, or its holds would last for their
	// TTL. So all records are freed first, and only those of sessions that were dead before that.
	f, err := s.currentFolder(false)
	if err != nil || f.sessions == nil {
		return
	}
	dead := s.deadSessions(f.sessions, idle)
	files, err := s.recordFiles()
	if err != nil {
		return
	}
	complete := true
	for _, file := range files {
		if ctx.Err() != nil {
			return
		}
		if strings.HasSuffix(file, recordSuffix) {
			complete = s.sweepRecord(ctx, file, idle) && complete
		}
	}
	for _, id := range dead {
		if complete {
			_ = f.sessions.Remove(id)
		}
	}
}

// What a sweep does to a record.
const (
	leaveRecord = iota
	freeRecord
	deleteRecord
)

// sweepRecord frees a record of a dead holder, and deletes one that has been free for long. It
// reports whether it could process the record. It first peeks at it, so that a sweep locks no
// record that is in use: this process may be stopped at any moment.
func (s *engine) sweepRecord(ctx context.Context, file string, idle time.Duration) bool {
	todo := func(f *os.File, rec *record) int {
		switch {
		case rec.Tolerant != nil && rec.Boot == s.host.boot:
			if s.endDead(rec) {
				return freeRecord
			}
			if next := rec.with(nil, nil, &s.host); next.Tolerant == nil && s.isIdleRecord(f, rec, idle) {
				return deleteRecord
			}
		case s.isHeld(rec):
		case rec.State == stateHeld && rec.isUnexpired(&s.host):
			return freeRecord
		case s.isIdleRecord(f, rec, idle):
			return deleteRecord
		}
		return leaveRecord
	}
	f, err := s.openExisting(ctx, locksFolder, file, os.O_RDONLY)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	rec, err := s.peek(f.File)
	done := err == nil && todo(f.File, &rec) == leaveRecord
	f.Close()
	if done {
		return true
	}
	const timeout = 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	f, err = s.openRecordFile(ctx, file, "", exclusive)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) || errors.Is(err, driver.ErrCorrupt) // It names no session.
	}
	defer f.Close()
	switch todo(f.File, &f.rec) {
	case freeRecord:
		return f.write(f.rec.with(nil, nil, &s.host)) == nil
	case deleteRecord:
		_ = f.dir.Remove(file)
	}
	return true
}

// isIdleRecord reports whether the file of a free record can be deleted. The file must not have
// changed for as long as idle, and the token clock must be past its last token, in later boots too,
// since that token is then forgotten.
func (s *engine) isIdleRecord(f *os.File, rec *record, idle time.Duration) bool {
	if !canSweepRecords {
		return false
	}
	info, err := f.Stat()
	if err != nil || s.host.wall().Sub(info.ModTime()) < idle {
		return false
	}
	saved, last := s.tokens.Load(), rec.lastToken()
	return saved != nil && last < saved.nowMicros(&s.host) && last <= saved.Mark
}

// deadSessions returns the dead sessions in a folder. It deletes those that have been empty for as
// long as idle: they were never begun, or not deleted when they were closed.
func (s *engine) deadSessions(in *dir, idle time.Duration) []string {
	ids, err := in.names()
	if err != nil {
		return nil
	}
	var dead []string
	for _, id := range ids {
		if !isSessionID(id) || id == s.currentSessionID() {
			continue
		}
		deleteOld := func(info fs.FileInfo) {
			if s.host.wall().Sub(info.ModTime()) >= idle {
				_ = in.Remove(id)
			}
		}
		if probeSession(in, id, deleteOld) {
			dead = append(dead, id)
		}
	}
	return dead
}
