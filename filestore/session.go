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
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A session stands for an open Store. It is a file that the Store has open from before its first
// entry to its end. When the process dies, the kernel closes the file, and all can see that the
// entries of the session are over, save detached holds. So they are when the file is missing. What
// has ended once has ended for good.
//
// The file is also where the Store gets notices: others write a line into it with the hash of the
// owner of an entry, and a token. On Unix it is a named pipe, so that the Store waits for them
// without a look.
type session struct {
	folder  *folder
	id      string
	file    *os.File
	closing context.Context // ends with the session
	end     context.CancelFunc
	running sync.WaitGroup // what receives, watches and sweeps
	watches chan struct{}  // has a value for each session that is watched

	mu     sync.Mutex       // never held while the disk is used
	places map[string]place // by the hash of the owner
}

// A place watches the sessions before it.
type place struct {
	actor
	stop context.CancelFunc
	look *time.Timer // when one of their entries ends
}

const (
	sessionIDLen = 32

	// maxWatches is how many sessions a Store watches at a time, and how many for one place. Each
	// takes a descriptor, which a process needs to renew what it holds.
	maxWatches = 64

	// soonestLook is how soon a place looks for the end of an entry by time.
	soonestLook = time.Second

	// lookStep, times the position of a place, is how often the place looks for the death of others
	// on systems other than Linux.
	lookStep = 10 * time.Millisecond
)

func sessionFile(id string) string { return "session-" + id }

// openSession makes the session of this Store. Others may sweep a file that is not in use yet.
func (f *folder) openSession() (*session, error) {
	_ = f.Mkdir(older, 0o700) // It keeps those out that come later.
	if err := f.refuseOlder(); err != nil {
		return nil, err
	}
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
			folder: f, id: id, file: file,
			watches: make(chan struct{}, maxWatches), places: map[string]place{},
		}
		s.closing, s.end = context.WithCancel(f.store.closing)
		s.running.Go(s.receive)
		s.running.Go(s.sweep)
		return s, nil
	}
}

var errDead = errors.New("the process has ended")

// isAlive reports whether the process of a session may be alive. It removes the file of a dead one.
// With an error, such as that of a process that can open no more files, it is not known.
func (f *folder) isAlive(id string) (bool, error) {
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

// sweep looks at some of the files in the folder: it deletes those of dead sessions, and ends the
// entries of the dead in a shard. A process that is killed leaves fewer, as a rule.
func (s *session) sweep() {
	const most = 64
	files, _ := s.folder.names()
	for _, i := range mathrand.Perm(len(files))[:min(most, len(files))] {
		if id, isSession := strings.CutPrefix(files[i], sessionFile("")); isSession {
			_, _ = s.folder.isAlive(id) // It removes a dead one.
		}
	}
	ctx, cancel := context.WithTimeout(s.closing, time.Second) // A disk may hang.
	defer cancel()
	s.folder.store.listShard(ctx, mathrand.IntN(shardCount), "", func(driver.Record, error) bool { return true })
}

// knock sends a notice through the file of a session. One that is lost costs the owner some time.
func (f *folder) knock(id, notice string) {
	if inbox, err := f.openInbox(sessionFile(id)); err == nil {
		putLine(inbox, notice)
		inbox.Close()
	}
}

// note keeps what there is to know of the entry of an actor, or that it has none. A place watches
// the sessions before it, in place of what it has watched so far, and looks when one of their
// entries ends.
func (s *session) note(st *state) {
	mailbox, who, i := &s.folder.store.notices, st.who, st.index()
	s.mu.Lock()
	defer s.mu.Unlock()
	if former, isPlace := s.places[who.hash]; isPlace {
		former.stop()
		former.look.Stop()
		delete(s.places, who.hash)
	}
	if i < 0 || st.queue.Entries()[i].Kept {
		mailbox.Forget(who.name, who.owner)
		return
	}
	mailbox.Expect(who.name, who.owner, st.queue.Entries()[i].Until-st.now)
	position := i + 1 - len(st.queue.Holds())
	if position <= 0 || s.closing.Err() != nil {
		return
	}
	before, end := st.before(position)
	ctx, stop := context.WithCancel(s.closing)
	look := func() { mailbox.Send(who.name, who.owner, 0) }
	s.places[who.hash] = place{who, stop, time.AfterFunc(max(end, soonestLook), look)}
	for _, id := range before {
		s.running.Go(func() { s.watch(ctx, id, lookStep*time.Duration(position), look) })
	}
}

// watch waits for the death of a session, and then has the owner of the place behind it look.
func (s *session) watch(ctx context.Context, id string, step time.Duration, look func()) {
	select {
	case s.watches <- struct{}{}:
		defer func() { <-s.watches }()
	case <-ctx.Done():
		return
	}
	for ctx.Err() == nil {
		inbox, err := s.folder.openInbox(sessionFile(id))
		switch {
		case err == nil:
			awaitEnd(ctx, inbox, step)
		case errors.Is(err, errDead), errors.Is(err, fs.ErrNotExist):
			look()
			return
		default: // as if the process can open no more files, which its requests need first
			sleep(ctx, time.Second)
		}
	}
}

// sleep waits for d, or for the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
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
			if fields := strings.Fields(string(line)); len(fields) == 2 {
				s.take(fields[0], fields[1])
			}
		}
	}
}

// watchAnew takes the place of a token in a notice to a place that has others before it than those
// that it watches.
const watchAnew = -1

// take passes a notice on.
func (s *session) take(owner, number string) {
	if number != fmt.Sprint(watchAnew) {
		s.folder.store.notices.Receive(owner, number)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, isPlace := s.places[owner]; isPlace && s.closing.Err() == nil {
		s.running.Go(func() {
			nothing := func(*state) (struct{}, error) { return struct{}{}, nil }
			_, _ = do(s.closing, s.folder.store, p.actor, false, nothing)
		})
	}
}

// close ends the session. A process that has inherited the file keeps it alive.
func (s *session) close() {
	s.mu.Lock()
	s.end() // It watches no more.
	for _, p := range s.places {
		p.look.Stop()
	}
	s.mu.Unlock()
	putLine(s.file, "\n") // wakes receive
	s.running.Wait()
	s.file.Close()
	_, _ = s.folder.isAlive(s.id) // It removes a dead one.
}
