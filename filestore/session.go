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
	closing context.Context // ends with the session
	end     context.CancelFunc
	running sync.WaitGroup // what receives, watches and sweeps

	mu       sync.Mutex           // never held while the disk is used
	entries  map[string]*ownEntry // by the hash of the owner
	forgetAt int                  // the number of entries at which those that have ended are forgotten
	watches  map[string]*watch    // by the session that is watched
}

// An ownEntry is an entry that was made, or last renewed, through this Store.
type ownEntry struct {
	actor
	until  time.Duration // its end, as this Store knows it
	before []string      // the sessions whose death may bring a place forward
}

// A watch waits for the death of a session for the places behind it.
type watch struct {
	places int
	stop   context.CancelFunc
}

const (
	sessionIDLen = 32

	// maxBefore is how many holds the first place watches. It finds the death of another one when
	// it is renewed.
	maxBefore = 32

	// lookStep, times the position of a place, is how often the place looks for the death of others
	// where the kernel does not tell it.
	lookStep = 10 * time.Millisecond
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
		s := &session{
			folder: f, id: id, file: file, entries: map[string]*ownEntry{}, watches: map[string]*watch{},
		}
		s.closing, s.end = context.WithCancel(context.Background())
		return s, nil
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

// note keeps what there is to know of the entry of an actor, or that it has none.
func (s *session) note(st *state) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.entries) >= s.forgetAt {
		for hash, own := range s.entries {
			if own.until <= st.now {
				s.keep(hash, nil, 0)
			}
		}
		s.forgetAt = max(1000, 2*len(s.entries))
	}
	i := st.index()
	if i < 0 || st.queue.Entries()[i].Kept {
		s.keep(st.who.hash, nil, 0)
		return
	}
	position := i + 1 - len(st.queue.Holds())
	own := &ownEntry{actor: st.who, until: st.queue.Entries()[i].Until}
	if position > 0 {
		own.before = st.sessionsBefore(position)
	}
	s.keep(own.hash, own, lookStep*time.Duration(position))
}

// keep replaces what is known of an entry, which is nothing with nil, and watches the sessions
// before it instead of those before the former one. The caller holds s.mu.
func (s *session) keep(hash string, own *ownEntry, step time.Duration) {
	former := s.entries[hash]
	if own == nil {
		delete(s.entries, hash)
	} else if s.closing.Err() == nil {
		s.entries[hash] = own
		for _, id := range own.before {
			w := s.watches[id]
			if w == nil {
				ctx, stop := context.WithCancel(s.closing)
				w = &watch{stop: stop}
				s.watches[id] = w
				s.running.Go(func() { s.watch(ctx, id, step) })
			}
			w.places++
		}
	}
	if former == nil {
		return
	}
	for _, id := range former.before {
		w := s.watches[id]
		if w.places--; w.places == 0 {
			w.stop()
			delete(s.watches, id)
		}
	}
}

// watch waits for the death of a session, and lets the owners of the places behind it look then.
func (s *session) watch(ctx context.Context, id string, step time.Duration) {
	for alive := true; alive; alive, _ = s.folder.isAlive(id) {
		if s.folder.awaitEnd(ctx, id, step); ctx.Err() != nil {
			return
		}
	}
	var places []actor
	s.mu.Lock()
	for _, own := range s.entries {
		if slices.Contains(own.before, id) {
			places = append(places, own.actor)
		}
	}
	s.mu.Unlock()
	for _, who := range places {
		s.folder.store.notices.Send(who.name, who.owner, 0)
	}
}

// sleep waits for d, or for the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// receive receives the notices that others write into the file, until the session is closed. What
// is no notice is passed over.
func (s *session) receive() {
	for lines := bufio.NewReader(s.file); ; {
		line, err := lines.ReadSlice('\n')
		if s.closing.Err() != nil {
			return
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

// send passes a notice on to the owner of an entry. A token below zero is for the Store: the place is
// the first, behind the sessions.
func (s *session) send(hash string, token int64, before []string) {
	s.mu.Lock()
	own := s.entries[hash]
	if own != nil && token < 0 {
		first := *own
		first.before = before[:min(len(before), maxBefore)]
		s.keep(hash, &first, lookStep)
	}
	s.mu.Unlock()
	if own != nil && token >= 0 {
		s.folder.store.notices.Send(own.name, own.owner, token)
	}
}

// close ends the session. A process that has inherited the file keeps it alive.
func (s *session) close() {
	s.mu.Lock()
	s.end() // It watches no more.
	s.mu.Unlock()
	putLine(s.file, []byte("\n")) // wakes receive
	s.running.Wait()
	s.file.Close()
	s.folder.session.Store(nil)
	_, _ = s.folder.isAlive(s.id) // It removes a dead one.
}
