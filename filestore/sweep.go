package filestore

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// idleTime is how long a free record stays before it is swept.
const idleTime = 10 * time.Minute

// A sweeper runs at most one sweep of its store at a time.
type sweeper struct {
	ctx     context.Context
	cancel  context.CancelFunc
	mu      sync.Mutex
	stopped bool
	running atomic.Bool
	wg      sync.WaitGroup
}

// startSweep sweeps in the background, unless a sweep is already running. It is called after a
// change of the tokens file, which is by about one process in ten minutes.
func (s *Store) startSweep() {
	s.sweeper.mu.Lock()
	defer s.sweeper.mu.Unlock()
	if s.sweeper.stopped || s.sweeper.running.Swap(true) {
		return
	}
	s.sweeper.wg.Go(func() {
		defer s.sweeper.running.Store(false)
		s.sweepIdle(s.sweeper.ctx, idleTime)
	})
}

// stopAndWait ends the sweep under way and waits for it.
func (w *sweeper) stopAndWait() {
	w.cancel()
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	w.wg.Wait()
}

// sweepIdle deletes the files of names that have been free for as long as idle, and the files of
// dead sessions. It leaves alone what it may not delete or cannot read.
func (s *Store) sweepIdle(ctx context.Context, idle time.Duration) {
	// A dead session must exist as long as a record names it, or its holds would last for their
	// TTL. So all records are freed first, and only those of sessions that were dead before that.
	f, err := s.retainFolder(false)
	if err != nil {
		return
	}
	defer f.release()
	if f.sessions == nil {
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
			_ = f.sessions.remove(id)
		}
	}
}

// sweepRecord frees a record of a dead holder, and deletes one that has been free for long. It
// reports whether it could process the record.
func (s *Store) sweepRecord(ctx context.Context, file string, idle time.Duration) bool {
	if needed, allowed := s.needsSweep(file, idle); !needed || !allowed {
		return allowed
	}
	const timeout = 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	rf, err := s.openLockedAt(ctx, file, "", exclusive)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if err != nil {
		return errors.Is(err, driver.ErrCorrupt) // Such a file names no session.
	}
	defer rf.close()
	switch {
	case s.isHeld(&rf.rec):
	case rf.rec.State == stateHeld && rf.rec.isUnexpired(&s.host):
		return rf.write(rf.rec.freed()) == nil
	case s.isIdleRecord(rf.File, &rf.rec, idle):
		_ = rf.dir.remove(file)
	}
	return true
}

// needsSweep peeks at a record, so that a sweep locks no record that is in use: this process may be
// stopped at any moment. It also reports whether this user may open the file.
func (s *Store) needsSweep(file string, idle time.Duration) (needed, allowed bool) {
	f, err := s.openForPeek(file)
	if err != nil {
		return true, !errors.Is(err, fs.ErrPermission)
	}
	defer f.Close()
	rec, err := peek(f)
	if err != nil {
		return true, true
	}
	dead := rec.State == stateHeld && rec.isUnexpired(&s.host)
	return !s.isHeld(&rec) && (dead || s.isIdleRecord(f, &rec, idle)), true
}

// isIdleRecord reports whether the file of a free record can be deleted. The file must not have
// changed for as long as idle, and the token clock must be past its last token, in later boots too,
// since that token is then forgotten.
func (s *Store) isIdleRecord(f *os.File, rec *record, idle time.Duration) bool {
	if !canSweepRecords {
		return false
	}
	info, err := f.Stat()
	if err != nil || s.host.wall().Sub(info.ModTime()) < idle {
		return false
	}
	s.tokens.mu.Lock()
	clock, mark := s.tokens.clock, s.tokens.mark
	s.tokens.mu.Unlock()
	return clock.Boot != "" && rec.lastToken() < clock.nowMicros(&s.host) && rec.lastToken() <= mark
}

// deadSessions returns the dead sessions in a folder. It deletes those that have been empty for as
// long as idle: they were never begun, or not deleted when they were closed.
func (s *Store) deadSessions(in *dir, idle time.Duration) []string {
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
				_ = in.remove(id)
			}
		}
		if probeSession(in, id, deleteOld) {
			dead = append(dead, id)
		}
	}
	return dead
}
