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
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A session stands for an open Store. It is a file that the Store keeps locked from before its
// first entry to its end. When the process dies, the kernel unlocks the file, and all can see that
// the entries of the session are over, save those that are detached. So they are when the file is
// missing.
//
// The file is also where the Store gets notices: others append a line with the owner of an entry
// and its token. A goroutine receives them, and looks for the death of the processes before a place
// at the front. It watches the file, if there is a place near the front, or a hold for some time.
// Otherwise it looks from time to time.
type session struct {
	folder   *folder
	id       string
	file     *os.File
	begins   int64         // where the notices begin, behind the header
	closing  chan struct{} // closed at the end
	ended    chan struct{} // closed when run has ended
	changed  chan struct{} // has a value when there is another entry to look at
	sweeping sync.WaitGroup
	watcher  atomic.Pointer[fsnotify.Watcher] // of run; nil if there is none

	mu      sync.Mutex
	entries map[string]ownEntry // by the hash of the owner
	rests   bool                // the next look of run is too late for a new hold
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

	// idleTime is how long there are no entries before the watcher is closed, and nothing is looked
	// at any more.
	idleTime = 500 * time.Millisecond

	// longestLook is how long it takes at most to see that there are no entries any more, or that
	// one has ended.
	longestLook = 2 * time.Second

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
	f.session.Store(s)
	go s.run()
	s.sweeping.Go(f.sweep)
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
			return nil, f.notApplied("create", sessionFile(id), err)
		}
		begins := 0
		if err = setLock(file, exclusive); err == nil { // Others may look at it, for a moment.
			begins, err = fmt.Fprintf(file, "%s%d,\"started\":%q}\n",
				sessionHeader, os.Getpid(), time.Now().UTC().Format(time.RFC3339))
		}
		if err != nil {
			file.Close()
			_ = f.Remove(sessionFile(id))
			return nil, f.notApplied("write", sessionFile(id), err)
		}
		if _, err := f.Lstat(sessionFile(id)); err == nil {
			return &session{
				folder: f, id: id, file: file, begins: int64(begins), entries: map[string]ownEntry{},
				closing: make(chan struct{}), ended: make(chan struct{}), changed: make(chan struct{}, 1),
			}, nil
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
	return true, f.notApplied("examine", sessionFile(id), err)
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

// note keeps what there is to know of the entry of an actor, or that it has none.
func (s *session) note(st *state) {
	i := st.index()
	own := ownEntry{actor: st.who, noted: time.Now(), position: max(i+1-len(st.queue.Holds()), 0)}
	if 0 < own.position && own.position <= front {
		own.before = st.sessionsBefore(own.position)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i < 0 || st.queue.Entries()[i].Kept {
		delete(s.entries, own.hash)
		return
	}
	own.until = st.queue.Entries()[i].Until
	s.entries[own.hash] = own
	s.wakeLocked(own)
}

// wakeLocked wakes run for an entry, unless that is a hold, at which the next look is in time.
func (s *session) wakeLocked(e ownEntry) {
	if e.position > 0 || s.rests {
		s.rests = false
		select {
		case s.changed <- struct{}{}:
		default: // It has been woken.
		}
	}
}

// run receives notices and looks at the entries, until the session is closed.
func (s *session) run() {
	defer close(s.ended)
	store, read := s.folder.store, s.begins
	var looked, busy time.Time // for the death of others, and when there was an entry
	for {
		read = s.receive(read)

		now, interval, isToWatch := store.host.uptime(), longestLook, false
		watcher := s.watcher.Load()
		var behind []ownEntry
		s.mu.Lock()
		for hash, e := range s.entries {
			look := e.until - now + time.Millisecond
			if e.position > 0 && (watcher == nil || len(e.before) > 0) {
				look = lookStep * time.Duration(e.position)
			} else if watcher == nil {
				look = holdLook
			}
			if e.until <= now {
				delete(s.entries, hash)
				continue
			}
			interval = min(interval, look)
			isShort := e.position == 0 && time.Since(e.noted) < longHold
			isToWatch = isToWatch || e.position <= near && !isShort
			if len(e.before) > 0 {
				behind = append(behind, e)
			}
		}
		if len(s.entries) > 0 {
			busy = time.Now()
		}
		sleeps := time.Since(busy) > idleTime
		if len(s.entries) == 0 && !sleeps {
			interval = holdLook
		}
		s.rests = watcher == nil && interval > holdLook
		s.mu.Unlock()

		switch {
		case isToWatch && watcher == nil && s.watch():
			continue // with what came before
		case sleeps && watcher != nil:
			s.watcher.Store(nil) // There are few of them in a system.
			watcher.Close()
			continue
		case watcher == nil:
			watcher = &fsnotify.Watcher{} // Its channels are nil.
		}

		if time.Since(looked) >= lookStep {
			looked = time.Now()
			sessions := examiner{folder: s.folder, living: map[string]bool{}}
			for _, e := range behind {
				if slices.ContainsFunc(e.before, func(id string) bool { return !sessions.isAlive(id) }) {
					store.notices.Send(e.name, e.owner, 0)
				}
			}
		}

		select {
		case <-watcher.Events:
		case <-watcher.Errors: // It has missed some, perhaps all that come later.
			store.notices.Send("", "", 0)
		case <-s.changed:
		case <-time.After(interval):
		case <-s.closing:
			return
		}
	}
}

// watch begins to watch the file, if the system can do that, and has room.
func (s *session) watch() bool {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return false
	}
	if watcher.Add(s.folder.path(sessionFile(s.id))) != nil {
		watcher.Close()
		return false
	}
	s.watcher.Store(watcher)
	return true
}

// receive sends the notices that others have written into the file from a place on, and returns up
// to where it has read. It cuts a file that is long.
func (s *session) receive(from int64) int64 {
	info, err := s.file.Stat()
	if err != nil || info.Size() <= from {
		return from
	}
	text := make([]byte, min(info.Size()-from, maxNotices))
	n, _ := s.file.ReadAt(text, from)
	text = text[:bytes.LastIndexByte(text[:n], '\n')+1]
	from += int64(len(text))
	isCut := info.Size() > maxNotices && s.file.Truncate(s.begins) == nil
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
		return s.begins
	}
	return from
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
		s.entries[hash] = e
		s.wakeLocked(e)
	}
	s.mu.Unlock()
	if isOwn && token >= 0 {
		s.folder.store.notices.Send(e.name, e.owner, token)
	}
}

// close ends the session. A process that has inherited the file keeps it alive.
func (s *session) close() {
	close(s.closing)
	<-s.ended
	s.sweeping.Wait()
	if watcher := s.watcher.Load(); watcher != nil {
		watcher.Close()
	}
	s.file.Close()
	s.folder.session.Store(nil)
	_, _ = s.folder.isAlive(s.id) // It removes a dead one.
}
