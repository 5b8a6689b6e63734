package filestore

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
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
// entries of the session are over, save detached holds. So they are when the file is missing. What
// has ended once has ended for good.
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

	mu      sync.Mutex        // never held while the disk is used
	places  map[string]*place // by the hash of the owner
	watches int               // of all places
}

// A place waits for the death of the sessions before it, and for the end of their entries by time.
type place struct {
	actor
	before  []string
	watches int // of them; fewer where the Store had too many
	step    time.Duration
	look    *time.Timer
	stop    context.CancelFunc
}

const (
	sessionIDLen = 32

	// maxBefore is how many holds the first place watches. It finds the death of another one when
	// it is renewed.
	maxBefore = 32

	// maxWatches is how many sessions a Store watches. Each takes a descriptor, which a process
	// needs to renew what it holds. A place without a watch relies on its looks.
	maxWatches = 64

	// soonestLook is how soon a place looks for the end of an entry by time.
	soonestLook = time.Second

	// lookStep, times the position of a place, is how often the place looks for the death of others
	// on systems other than Linux.
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
		s := &session{folder: f, id: id, file: file, places: map[string]*place{}}
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
func (f *folder) knock(id, notice string) {
	if inbox, err := f.openInbox(sessionFile(id)); err == nil {
		putLine(inbox, []byte(notice))
		inbox.Close()
	}
}

// note keeps what there is to know of the entry of an actor, or that it has none.
func (s *session) note(st *state) {
	i := st.index()
	if i < 0 || st.queue.Entries()[i].Kept {
		s.folder.store.notices.Forget(st.who.name, st.who.owner)
		s.await(st.who, nil, 0, 0)
		return
	}
	s.folder.store.notices.Expect(st.who.name, st.who.owner, st.queue.Entries()[i].Until-st.now)
	position := i + 1 - len(st.queue.Holds())
	before, end := st.before(position)
	s.await(st.who, before, lookStep*time.Duration(position), end-st.now)
}

// await watches the sessions before a place instead of those that were before it, of which an entry
// ends after a time. With nil it is no place any more.
func (s *session) await(who actor, before []string, step, end time.Duration) {
	before = slices.DeleteFunc(before, func(id string) bool { return id == s.id })
	s.mu.Lock()
	defer s.mu.Unlock()
	former, end := s.places[who.hash], max(end, soonestLook)
	switch {
	case s.closing.Err() != nil:
		return
	case former != nil && before != nil && slices.Equal(former.before, before) &&
		former.watches == len(before) && former.step == step:
		former.look.Reset(end)
		return
	case former != nil:
		former.stop()
		s.watches -= former.watches
		delete(s.places, who.hash)
	}
	if before == nil {
		return
	}
	ctx, stop := context.WithCancel(s.closing)
	look := time.AfterFunc(end, func() {
		if ctx.Err() == nil {
			s.folder.store.notices.Send(who.name, who.owner, 0)
		}
	})
	context.AfterFunc(ctx, func() { look.Stop() })
	watched := min(len(before), maxWatches-s.watches)
	s.watches += watched
	s.places[who.hash] = &place{who, before, watched, step, look, stop}
	for _, id := range before[:watched] {
		s.running.Go(func() { s.watch(ctx, who, id, step) })
	}
}

// watch waits for the death of a session, and lets the owner of the place behind it look then.
func (s *session) watch(ctx context.Context, who actor, id string, step time.Duration) {
	for ctx.Err() == nil {
		inbox, err := s.folder.openInbox(sessionFile(id))
		switch {
		case err == nil:
			awaitEnd(ctx, inbox, step)
		case errors.Is(err, errDead), errors.Is(err, fs.ErrNotExist):
			s.folder.store.notices.Send(who.name, who.owner, 0)
			return
		default: // as if the process can open no more files, which its requests need first
			sleep(ctx, time.Second)
		}
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
		switch {
		case err == io.EOF:
			s.awaitLines()
		case err != nil && err != bufio.ErrBufferFull:
			return
		default:
			s.take(string(line))
		}
	}
}

// noticeText has the hash of an owner, a token, and the sessions that are now before a place, with
// newBefore in place of a token.
const (
	noticeText = "%s %d %s\n"
	newBefore  = -1
)

// take passes a notice on, or watches the sessions in it.
func (s *session) take(notice string) {
	fields := strings.Fields(notice)
	switch {
	case len(fields) < 2:
	case fields[1] == strconv.Itoa(newBefore):
		s.mu.Lock()
		own := s.places[fields[0]]
		s.mu.Unlock()
		if own != nil {
			s.await(own.actor, fields[2:min(len(fields), 2+maxBefore)], lookStep, 0)
		}
	default:
		s.folder.store.notices.Receive(fields[0], fields[1])
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
