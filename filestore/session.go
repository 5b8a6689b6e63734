package filestore

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A session stands for an open Store. It is a file that the Store has open from before its first
// entry to its end. When the process dies, the kernel closes the file, and all can see that the
// entries of the session are over, save those that are detached. So they are when the file is
// missing. What has ended once has ended for good.
//
// The file is also where the Store gets notices: others write a line into it with the owner of an
// entry and its token. On Unix it is a named pipe, so that the Store waits for them without a look.
type session struct {
	folder  *folder
	id      string
	file    *os.File
	closing chan struct{}  // closed at the end
	changed chan struct{}  // has a value when there is another place at the front
	running sync.WaitGroup // what receives, watches and sweeps

	mu      sync.Mutex
	entries map[string]*ownEntry // by the hash of the owner
}

// An ownEntry is an entry that was made, or last renewed, through this Store.
type ownEntry struct {
	actor
	until time.Duration // its end, as this Store knows it
	holds bool          // or it is a place

	// The change of the file of its name in which its line was where it is; 0 if that is not known.
	change, line int64

	// A place at the front has a position, from 1, and the sessions whose death may make it a hold.
	position int
	before   []string
}

const (
	sessionIDLen = 32

	// front is up to which position a place looks for the death of others, at intervals of lookStep
	// times the square of its position.
	front    = 4
	lookStep = 10 * time.Millisecond

	// maxBefore is how many sessions a place looks at. The next request for the name finds the
	// death of one of the others.
	maxBefore = 32

	// forgetStep is how often entries are forgotten that have ended.
	forgetStep = time.Minute
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
	s.running.Go(s.receive)
	s.running.Go(s.watch)
	s.running.Go(f.sweep)
	return s, nil
}

// makeSession makes the file of a session. Others may sweep one that is not in use yet.
func (f *folder) makeSession() (*session, error) {
	for tries := 100; ; tries-- {
		random := make([]byte, sessionIDLen/2)
		rand.Read(random)
		id := hex.EncodeToString(random)
		file, err := f.makeInbox(sessionFile(id))
		if errors.Is(err, fs.ErrNotExist) && tries > 0 {
			continue
		}
		if err != nil {
			return nil, f.notApplied("create", sessionFile(id), err)
		}
		return &session{
			folder: f, id: id, file: file, entries: map[string]*ownEntry{},
			closing: make(chan struct{}), changed: make(chan struct{}, 1),
		}, nil
	}
}

var errDead = errors.New("the process has ended")

// isAlive reports whether the process of a session may be alive. It removes the file of a dead one.
// With an error, such as that of a process that can open no more files, it is not known.
func (f *folder) isAlive(id string) (bool, error) {
	if own := f.session.Load(); own != nil && own.id == id {
		return true, nil
	}
	inbox, err := f.openInbox(sessionFile(id))
	switch {
	case err == nil:
		inbox.Close()
		return true, nil
	case errors.Is(err, errDead):
		_ = f.Remove(sessionFile(id)) // A user that may only read leaves it.
		return false, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	}
	return true, f.notApplied("examine", sessionFile(id), err)
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
			ctx, cancel := context.WithTimeout(f.store.closing, 50*time.Millisecond)
			_, err := f.store.show(ctx, file, "", (*state).holds) // It deletes that of a free name.
			cancel()
			if errors.Is(err, context.DeadlineExceeded) || f.store.isClosed() {
				return // The name is in use, or the folder is being closed.
			}
		}
	}
}

// knock sends a notice through the file of a session. One that is lost costs the owner some time.
func (f *folder) knock(id, hash string, token int64, before []string) {
	if inbox, err := f.openInbox(sessionFile(id)); err == nil {
		putLine(inbox, fmt.Appendf(nil, "%s %d %s\n", hash, token, strings.Join(before, " ")))
		inbox.Close()
	}
}

// note keeps what there is to know of the entry of an actor, whose line in the file begins at a
// place, or that it has none.
func (s *session) note(st *state, line int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := st.index()
	if i < 0 || st.queue.Entries()[i].Kept {
		delete(s.entries, st.who.hash)
		return
	}
	position := i + 1 - len(st.queue.Holds())
	own := &ownEntry{
		actor: st.who, until: st.queue.Entries()[i].Until, holds: position <= 0,
		change: st.header.change, line: line,
	}
	s.entries[own.hash] = own
	if 0 < position && position <= front {
		s.toFront(own, position, st.sessionsBefore(position))
	}
}

// toFront keeps that a place is at the front, and wakes watch. The caller holds s.mu.
func (s *session) toFront(own *ownEntry, position int, before []string) {
	own.position, own.before = position, before
	select {
	case s.changed <- struct{}{}:
	default: // It has been woken.
	}
}

// watch looks for the death of the processes before the places at the front, and lets their owners
// look then. It forgets the entries that have ended.
func (s *session) watch() {
	store, looked := s.folder.store, time.Now()
	for {
		wait, now := forgetStep, store.host.uptime()
		var places []ownEntry
		s.mu.Lock()
		for hash, own := range s.entries {
			switch {
			case own.until <= now:
				delete(s.entries, hash)
			case own.position > 0:
				places = append(places, *own)
				wait = min(wait, lookStep*time.Duration(own.position*own.position))
			}
		}
		s.mu.Unlock()
		select {
		case <-s.changed:
			if time.Since(looked) < lookStep {
				continue
			}
		case <-time.After(wait):
		case <-s.closing:
			return
		}
		looked = time.Now()
		for _, own := range places {
			if slices.ContainsFunc(own.before, func(id string) bool {
				alive, _ := s.folder.isAlive(id)
				return !alive
			}) {
				store.notices.Send(own.name, own.owner, 0)
			}
		}
	}
}

// receive receives the notices that others write into the file, until the session is closed. What
// is no notice is passed over.
func (s *session) receive() {
	for lines := bufio.NewReader(s.file); ; {
		line, err := lines.ReadSlice('\n')
		select {
		case <-s.closing:
			return
		default:
		}
		switch fields := strings.Fields(string(line)); {
		case err == io.EOF:
			s.awaitLines()
		case err != nil && err != bufio.ErrBufferFull:
			return
		case len(fields) >= 2:
			if token, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				s.send(fields[0], token, fields[2:])
			}
		}
	}
}

// send passes a notice on to the owner of an entry, which is no place any more if there is a token.
// A token below zero is for the Store: the place is the first, behind the sessions.
func (s *session) send(hash string, token int64, before []string) {
	s.mu.Lock()
	own := s.entries[hash]
	switch {
	case own == nil:
	case token > 0:
		own.change, own.position, own.before = 0, 0, nil
	case token < 0:
		s.toFront(own, 1, before)
	}
	s.mu.Unlock()
	if own != nil && token >= 0 {
		s.folder.store.notices.Send(own.name, own.owner, token)
	}
}

// close ends the session. A process that has inherited the file keeps it alive.
func (s *session) close() {
	close(s.closing)
	putLine(s.file, []byte("\n")) // wakes receive
	s.running.Wait()
	s.file.Close()
	s.folder.session.Store(nil)
	_, _ = s.folder.isAlive(s.id) // It removes a dead one.
}
