package filestore

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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

// startSweep sweeps in the background, unless that is already being done. It is
// called by whoever has changed the tokens file, which is about one process in
// ten minutes.
func (s *Store) startSweep() {
	s.sweeper.mu.Lock()
	defer s.sweeper.mu.Unlock()
	if s.sweeper.stopped || s.sweeper.running.Swap(true) {
		return
	}
	s.sweeper.wg.Go(func() {
		defer s.sweeper.running.Store(false)
		s.sweep(s.sweeper.ctx, idleTime)
	})
}

// stop ends the sweep under way and waits for it.
func (w *sweeper) stop() {
	w.cancel()
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	w.wg.Wait()
}

// sweep deletes what is of no more use: the files of names that have been free
// for as long as idle, and those of dead sessions. What may not be deleted, or
// cannot be read, is left alone.
func (s *Store) sweep(ctx context.Context, idle time.Duration) {
	// A dead session must be there as long as a record names it, or its holds
	// would wait for their TTL. So records are freed first, all of them, and
	// only of sessions that were dead before that.
	dead := s.deadSessions(idle)
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
			complete = s.sweepRecord(ctx, filepath.Join(s.dir, locksFolder, file), idle) && complete
		}
	}
	for _, path := range dead {
		if complete {
			os.Remove(path)
		}
	}
}

// sweepRecord frees a record whose holder is dead, deletes one that has been
// free for long, and reports whether it could see to it.
func (s *Store) sweepRecord(ctx context.Context, path string, idle time.Duration) bool {
	if !s.worthSweeping(path, idle) {
		return true
	}
	const patience = 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	e, err := s.findAt(ctx, path, "", exclusive)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if err != nil {
		return errors.Is(err, driver.ErrCorrupt) // Such a file names no session.
	}
	defer e.close()
	switch {
	case s.inTheWay(&e.rec):
	case e.rec.State == stateHeld && e.rec.lasts(&s.host):
		return e.write(e.rec.free()) == nil
	case s.isIdle(e.file, &e.rec, idle):
		os.Remove(path)
	}
	return true
}

// worthSweeping takes a glance at a record, so that a sweep locks none that is in
// use: this process may be stopped at any moment.
func (s *Store) worthSweeping(path string, idle time.Duration) bool {
	f, err := os.OpenFile(path, os.O_RDONLY|careful, 0)
	if err != nil {
		return true
	}
	defer f.Close()
	rec, err := glance(f)
	if err != nil {
		return true
	}
	dead := rec.State == stateHeld && rec.lasts(&s.host)
	return !s.inTheWay(&rec) && (dead || s.isIdle(f, &rec, idle))
}

// isIdle reports whether the file of a free record can be deleted: it must have
// been left alone for a while, and the token clock must be past its last token,
// which nothing will remember, in later boots too.
func (s *Store) isIdle(f *os.File, rec *record, idle time.Duration) bool {
	if !sweepsRecords {
		return false
	}
	info, err := f.Stat()
	if err != nil || s.host.wall().Sub(info.ModTime()) < idle {
		return false
	}
	s.tokens.mu.Lock()
	clock, mark := s.tokens.clock, s.tokens.mark
	s.tokens.mu.Unlock()
	return clock.Boot != "" && rec.Token < clock.read(&s.host) && rec.Token <= mark
}

// deadSessions returns the paths of the files of dead sessions. It deletes those
// that have been empty for as long as idle: never begun, or not deleted when
// they were closed.
func (s *Store) deadSessions(idle time.Duration) []string {
	folder := filepath.Join(s.dir, sessionsFolder)
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil
	}
	var dead []string
	for _, file := range files {
		if !isSessionID(file.Name()) || file.Name() == s.openSession() {
			continue
		}
		path := filepath.Join(folder, file.Name())
		deleteOld := func(info fs.FileInfo) {
			if s.host.wall().Sub(info.ModTime()) >= idle {
				os.Remove(path)
			}
		}
		if probeSession(path, deleteOld) {
			dead = append(dead, path)
		}
	}
	return dead
}
