package filestore

import (
	"bufio"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A session stands for an open Store. It is a file that the Store has open from before its first
// entry to its end. When the process dies, the kernel closes the file, and all can see that the
// holds and places of the session are over. So they are when the file is missing. Detached holds
// and keeps stay.
//
// The file is the inbox of the Store: a notice is a line that others write into it, with the hash
// of the owner of an entry and a token. On Unix it is a named pipe, and nobody polls it.
type session struct {
	folder  *folder
	id      string
	file    *os.File
	isEnded atomic.Bool
	running sync.WaitGroup // receive and sweep

	mu    sync.Mutex      // never held while the disk is used
	looks map[string]bool // the places that are to look, by the hash of the owner
}

const (
	sessionIDLen = 26 // of rand.Text

	// lookStep, times the square of its position, is the time between the looks of one of the first
	// places at what is before it: the death of a process sends no notice. Those behind look when
	// they are renewed.
	lookStep = 100 * time.Millisecond
	lookers  = 8
)

func sessionFile(id string) string { return "session-" + id }

// openSession makes the session of this Store.
func (f *folder) openSession() (*session, error) {
	_ = f.Mkdir(older, 0o700)
	for tries := 9; ; tries-- {
		id := rand.Text()
		file, err := f.makeInbox(sessionFile(id))
		if err != nil && tries > 0 { // Another Store has swept it, or dead sessions have filled the disk.
			f.sweep()
			continue
		}
		if err != nil {
			return nil, notApplied("create", f.path(sessionFile(id)), err)
		}
		s := &session{folder: f, id: id, file: file, looks: map[string]bool{}}
		s.running.Go(s.receive)
		s.running.Go(f.sweep)
		return s, nil
	}
}

// reach writes a notice into the file of a session, and reports whether the process of that session
// may be alive. It removes the file of a dead one. The notice "" is none: reach looks only. A
// process counts as alive after an error, as when this process can open no more files. A notice is
// lost if the pipe is full: its receiver learns of its turn by its next look.
func (f *folder) reach(id, notice string) (isAlive bool, err error) {
	inbox, err := f.openInbox(sessionFile(id))
	switch {
	case err == nil:
		putLine(inbox, notice)
		inbox.Close()
		return true, nil
	case errors.Is(err, errDead):
		_ = f.Remove(sessionFile(id)) // A user that may only read leaves it.
		return false, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	}
	return true, notApplied("examine", f.path(sessionFile(id)), err)
}

// sweep deletes the files of dead sessions among some of those in the folder.
func (f *folder) sweep() {
	files, _ := fs.ReadDir(f.FS(), ".")
	for _, i := range mathrand.Perm(len(files))[:min(64, len(files))] {
		if id, isSession := strings.CutPrefix(files[i].Name(), sessionFile("")); isSession {
			_, _ = f.reach(id, "")
		}
	}
}

// lookLater sends the owner of one of the first places a notice to look, later: the more of them a
// Store has, the later.
func (s *session) lookLater(st *state, position int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if position > lookers || s.looks[st.hash] {
		return
	}
	s.looks[st.hash] = true
	store := s.folder.store
	time.AfterFunc(store.lookStep*time.Duration(max(position*position, len(s.looks)/10)), func() {
		s.mu.Lock()
		delete(s.looks, st.hash)
		s.mu.Unlock()
		store.notices.Send(st.name, st.owner, 0)
	})
}

// receive passes on the notices that others write into the file, until the session is closed. It
// ignores what is no notice.
func (s *session) receive() {
	for lines := bufio.NewReader(s.file); ; {
		line, err := lines.ReadSlice('\n')
		if s.isEnded.Load() {
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
	s.isEnded.Store(true)
	putLine(s.file, "\n") // wakes receive
	s.running.Wait()
	s.file.Close()
	_, _ = s.folder.reach(s.id, "") // It removes the file, unless a child has it.
}
