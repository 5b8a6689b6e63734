package filestore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A session stands for an open Store. It is a file that the Store keeps locked from before its
// first entry to its end. When the process dies, the kernel unlocks the file, and all can see that
// the entries of the session are over, save those that are detached. So they are when the file is
// missing.
//
// The file is also where the Store gets notices: others append a line with the owner of an entry
// and its token. The Store watches the file, if it has a place near the front, or a hold for some
// time. What waits farther back is looked at from time to time, and so are the sessions of those
// before it.
type session struct {
	folder *folder
	id     string
	file   *os.File

	mu       sync.Mutex
	entries  map[string]ownEntry // by the hash of the owner
	begins   int64               // where the notices begin, behind the header
	read     int64               // up to where the file has been read
	watcher  *fsnotify.Watcher   // nil if there is none
	timer    *time.Timer         // of the looks
	nextLook time.Time           // when it fires; zero if it is not set
	idle     bool                // there were no entries at the latest look
	closed   bool
	running  sync.WaitGroup
}

// An ownEntry is an entry that was made, or last renewed, through this Store.
type ownEntry struct {
	actor
	noted    time.Time
	until    time.Duration // its end, as this Store knows it; 0 if there is no entry
	position int           // among the places, from 1; 0 for a hold
	before   []string      // for a place at the front: the sessions whose end may make it a hold
}

const (
	sessionIDLen = 32

	// near is up to which position a place is watched: systems have few watchers for a user, often
	// 128. Those up to front look for the death of others.
	near  = 16
	front = 4

	// A Store looks at intervals of lookStep for each position, and of holdLook for a hold that it
	// does not watch: one that is new, or one for which there is no watcher.
	lookStep = 10 * time.Millisecond
	holdLook = 50 * time.Millisecond

	// longHold is how long a hold lasts before it is watched: to close a watcher takes the kernel
	// as long as a short program.
	longHold = 2 * time.Second

	// idleTime is half of the time after which a watcher without entries is closed, at least.
	idleTime = 500 * time.Millisecond

	// maxBefore is how many sessions a Store looks at for an entry. The next
	// request for the name finds the death of one of the others.
	maxBefore = 32

	// maxNotices is the size at which the file is cut, and how much of it is read at once.
	maxNotices = 64 << 10

	// sessionHeader is how the file begins.
	sessionHeader = `{"holdfast":2,"pid":`
)

func sessionFile(id string) string { return ".session-" + id }

// openSession returns the session of this Store, and makes it when it is first needed.
func (f *folder) openSession() (*session, error) {
	if own := f.session.Load(); own != nil {
		return own, nil
	}
	f.making.Lock()
	defer f.making.Unlock()
	if own := f.session.Load(); own != nil {
		return own, nil
	}
	s, err := f.makeSession()
	if isFull(err) { // perhaps of the files of dead sessions
		f.sweep()
		s, err = f.makeSession()
	}
	if err != nil {
		return nil, err
	}
	s.timer = time.AfterFunc(time.Hour, s.look)
	s.timer.Stop()
	f.session.Store(s)
	s.running.Go(f.sweep)
	return s, nil
}

// makeSession makes the file of a session.
func (f *folder) makeSession() (*session, error) {
	for {
		random := make([]byte, sessionIDLen/2)
		rand.Read(random)
		id := hex.EncodeToString(random)
		file, err := f.create(sessionFile(id))
		if err != nil {
			return nil, notApplied("create", f.path(sessionFile(id)), err)
		}
		begins := 0
		if err = setLock(file, awaited); err == nil { // Others may look at it, for a moment.
			begins, err = fmt.Fprintf(file, "%s%d,\"started\":%q}\n",
				sessionHeader, os.Getpid(), time.Now().UTC().Format(time.RFC3339))
		}
		if err != nil {
			file.Close()
			_ = f.Remove(sessionFile(id))
			return nil, notApplied("write", f.path(sessionFile(id)), err)
		}
		if _, err := f.Lstat(sessionFile(id)); err == nil {
			return &session{folder: f, id: id, file: file, begins: int64(begins), entries: map[string]ownEntry{}}, nil
		}
		file.Close() // It was swept before it was locked.
	}
}

// isAlive reports whether the process of a session may be alive. It uses a shared lock, so that two
// looks at the same time do not take each other for the process. It removes the file of a dead
// session under that lock: a session that is being made finds its file there for good, or missing.
// With an error, such as that of a process that can open no more files, it is not known.
func (f *folder) isAlive(id string) (bool, error) {
	if own := f.session.Load(); own != nil && own.id == id {
		return true, nil
	}
	file, err := f.OpenFile(sessionFile(id), os.O_RDONLY|openFlags, 0)
	if err == nil {
		defer file.Close()
		err = setLock(file, shared)
	}
	switch {
	case err == nil:
		_ = f.Remove(sessionFile(id)) // A user that may only read leaves it.
		return false, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case errors.Is(err, errLocked):
		return true, nil
	}
	return true, notApplied("examine", f.path(sessionFile(id)), err)
}

// An examiner looks at each session once.
type examiner struct {
	folder  *folder
	living  map[string]bool
	failure error // the first
}

func (x *examiner) isAlive(id string) bool {
	alive, known := x.living[id]
	if known {
		return alive
	}
	alive, err := x.folder.isAlive(id)
	x.living[id], x.failure = alive, cmp.Or(x.failure, err)
	return alive
}

// sweep looks at some of the files in the folder, and deletes those of dead sessions, and of names
// that have become free because of them. A process that is killed leaves fewer, as a rule.
func (f *folder) sweep() {
	const some = 64
	files, err := f.names()
	if err != nil {
		return
	}
	mathrand.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	for _, file := range files[:min(some, len(files))] {
		if id, isSession := strings.CutPrefix(file, sessionFile("")); isSession {
			_, _ = f.isAlive(id) // It removes a dead one.
		} else if isNameFile(file) {
			if err := f.store.settle(file, 50*time.Millisecond); errors.Is(err, context.DeadlineExceeded) {
				return // The name is in use, or the folder is being closed.
			}
		}
	}
}

// knock sends a notice through the file of a session. One that is lost costs the owner some time.
// It writes to no other file, which somebody may have moved there.
func (f *folder) knock(id, hash string, token int64, before []string) {
	file, _, err := f.open(sessionFile(id), os.O_RDWR|os.O_APPEND)
	if err != nil {
		return
	}
	defer file.Close()
	start := make([]byte, len(sessionHeader))
	if n, _ := file.ReadAt(start, 0); string(start[:n]) == sessionHeader {
		_, _ = fmt.Fprintf(file, "%s %d %s\n", hash, token, strings.Join(before, " "))
	}
}

// note keeps what there is to know of the entry of an actor, or that it has none. The function that
// it returns undoes that.
func (s *session) note(who actor, st *state) (undo func()) {
	own := ownEntry{actor: who, position: 1 - len(st.queue.Holds()), noted: time.Now()}
	for e := range st.queue.All() {
		if e.Owner == who.hash {
			own.until = e.Until
			break
		}
		if own.position <= 1 && len(own.before) < maxBefore && !e.Kept {
			own.before = append(own.before, strings.Clone(e.Data.session)) // not the file
		}
		own.position++
	}
	if own.position = max(own.position, 0); own.position == 0 || own.position > front {
		own.before = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	former := s.entries[who.hash]
	s.setLocked(who.hash, own, st.now)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.setLocked(who.hash, former, st.now)
	}
}

// setLocked sets what is known of an entry, unless that has ended, and sees to it that there is a
// watch, or a look in time.
func (s *session) setLocked(hash string, e ownEntry, now time.Duration) {
	if e.until > now {
		s.entries[hash], s.idle = e, false
		s.watchLocked(e)
		s.scheduleLocked(s.lookIn(e, now))
	} else if delete(s.entries, hash); len(s.entries) == 0 && s.watcher != nil {
		s.scheduleLocked(idleTime)
	}
}

// watchLocked begins to watch the file for an entry, if that is a hold or near, and the system can
// do that, and has room. A hold that is short needs no watcher.
func (s *session) watchLocked(e ownEntry) {
	isShort := e.position == 0 && time.Since(e.noted) < longHold
	if isShort || e.position > near || s.watcher != nil || s.closed {
		return
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return
	}
	if watcher.Add(s.folder.path(sessionFile(s.id))) != nil {
		watcher.Close()
		return
	}
	s.watcher = watcher
	s.running.Go(func() {
		s.receive() // what came before
		for {
			select {
			case _, isOpen := <-watcher.Events:
				if !isOpen {
					return
				}
				s.receive()
			case _, isOpen := <-watcher.Errors: // It has missed some, perhaps all that come later.
				if !isOpen {
					return
				}
				s.folder.store.notices.Send("", "", 0)
			}
		}
	})
}

// lookIn returns for how long an entry needs no look: until its end, if it is watched.
func (s *session) lookIn(e ownEntry, now time.Duration) time.Duration {
	switch {
	case s.watcher != nil && len(e.before) == 0:
		return e.until - now + time.Millisecond
	case e.position == 0:
		return holdLook
	}
	return lookStep * time.Duration(e.position)
}

// scheduleLocked makes the next look come within a time.
func (s *session) scheduleLocked(interval time.Duration) {
	next := time.Now().Add(interval)
	if !s.closed && (s.nextLook.IsZero() || next.Before(s.nextLook)) {
		s.nextLook = next
		s.timer.Reset(interval)
	}
}

// look looks for notices, and for the death of those before the places of this Store. It forgets
// the entries that have ended.
func (s *session) look() {
	s.receive()
	now := s.folder.store.host.uptime()
	var behind []ownEntry
	s.mu.Lock()
	if s.idle && s.watcher != nil {
		s.watcher.Close() // There are few of them in a system.
		s.watcher = nil
	}
	s.nextLook = time.Time{}
	for hash, e := range s.entries {
		s.setLocked(hash, e, now)
		if e.until > now && len(e.before) > 0 {
			behind = append(behind, e)
		}
	}
	if s.idle = len(s.entries) == 0; s.idle && s.watcher != nil {
		s.scheduleLocked(idleTime)
	}
	s.mu.Unlock()
	sessions := examiner{folder: s.folder, living: map[string]bool{}}
	for _, e := range behind {
		if slices.ContainsFunc(e.before, func(id string) bool { return !sessions.isAlive(id) }) {
			s.folder.store.notices.Send(e.name, e.owner, 0)
		}
	}
}

// receive sends the notices that others have written into the file. It cuts a file that is long.
func (s *session) receive() {
	s.mu.Lock()
	info, err := s.file.Stat()
	if err != nil || info.Size() <= s.read || s.closed {
		s.mu.Unlock()
		return
	}
	text := make([]byte, min(info.Size()-s.read, maxNotices))
	n, _ := s.file.ReadAt(text, s.read)
	text = text[:bytes.LastIndexByte(text[:n], '\n')+1]
	s.read += int64(len(text))
	isCut := info.Size() > maxNotices && s.file.Truncate(s.begins) == nil
	if isCut {
		s.read = s.begins
	}
	s.mu.Unlock()
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		if token, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
			s.send(fields[0], token, fields[2:])
		}
	}
	if isCut {
		s.folder.store.notices.Send("", "", 0) // Some that came before the cut are lost.
	}
}

// send passes a notice on to the owner of an entry, which is no place any more if there is a token.
// One below zero is the position of a place, and not for the owner.
func (s *session) send(hash string, token int64, before []string) {
	s.mu.Lock()
	e, isOwn := s.entries[hash]
	switch {
	case token > 0:
		e.noted, e.position, e.before = time.Now(), 0, nil
	case token < 0:
		e.position, e.before = int(-token), before
	}
	if isOwn {
		s.setLocked(hash, e, s.folder.store.host.uptime())
	}
	s.mu.Unlock()
	if isOwn && token >= 0 {
		s.folder.store.notices.Send(e.name, e.owner, token)
	}
}

// close ends the session. A process that has inherited the file keeps it alive.
func (s *session) close() {
	s.mu.Lock()
	s.closed = true
	s.timer.Stop()
	if s.watcher != nil {
		s.watcher.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
	s.file.Close()
	s.folder.session.Store(nil)
	_, _ = s.folder.isAlive(s.id) // It removes a dead one.
}
