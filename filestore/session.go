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
	running sync.WaitGroup // what receives and sweeps

	mu    sync.Mutex             // never held while the disk is used
	looks map[string]*time.Timer // of the places, by the hash of the owner
}

const (
	sessionIDLen = 32

	// lookStep, times its position, is the time between the looks of one of the first ten places at
	// what is before it: the death of a process sends no notice. The places behind look when they
	// are renewed, as a rule.
	lookStep = 100 * time.Millisecond
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
		s := &session{folder: f, id: id, file: file, looks: map[string]*time.Timer{}}
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

// knock sends a notice through the file of a session, and reports whether that is dead. A notice
// that is lost costs the owner some time.
func (f *folder) knock(id, notice string) (isDead bool) {
	inbox, err := f.openInbox(sessionFile(id))
	if err == nil {
		putLine(inbox, notice)
		inbox.Close()
	}
	return errors.Is(err, errDead) || errors.Is(err, fs.ErrNotExist)
}

// note keeps what there is to know of the entry of an actor, or that it has none. A place looks
// again later. The more places a Store has, the less often each of them looks.
func (s *session) note(st *state) {
	mailbox, who, i := &s.folder.store.notices, st.who, st.index()
	s.mu.Lock()
	defer s.mu.Unlock()
	if look, isPlace := s.looks[who.hash]; isPlace {
		look.Stop()
		delete(s.looks, who.hash)
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
	if position > 10 {
		position = 100
	}
	pause := s.folder.store.lookStep * time.Duration(max(position, len(s.looks)/10))
	s.looks[who.hash] = time.AfterFunc(pause, func() { s.look(who) })
}

// look ends what is before a place and dead, and tells its owner if that made it a hold. After a
// failure the place looks again when it is renewed.
func (s *session) look(who actor) {
	token, _ := do(s.closing, s.folder.store, who, true, func(st *state) (int64, error) {
		own := st.renew(0, 0)
		if own.State == driver.Held && st.wasPlace(own.Token) {
			return own.Token, nil
		}
		return 0, nil
	})
	if token > 0 {
		s.folder.store.notices.Send(who.name, who.owner, token)
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
			time.Sleep(inboxStep)
		case err != nil && err != bufio.ErrBufferFull:
			return
		default:
			if fields := strings.Fields(string(line)); len(fields) == 2 {
				s.folder.store.notices.Receive(fields[0], fields[1])
			}
		}
	}
}

// close ends the session. A process that has inherited the file keeps it alive.
func (s *session) close() {
	s.mu.Lock()
	s.end()
	for _, look := range s.looks {
		look.Stop()
	}
	s.mu.Unlock()
	putLine(s.file, "\n") // wakes receive
	s.running.Wait()
	s.file.Close()
	_, _ = s.folder.isAlive(s.id) // It removes a dead one.
}
