package filestore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A session stands for one open Store: a file that it keeps exclusively locked
// from before its first hold to its end. When its process dies, the kernel
// closes the file, and whoever can lock it then knows that its holds are
// nobody's. A detached hold belongs to no session.
//
// A file that is empty is that of a session just being made or properly closed,
// and proves nothing; neither does a file that is missing, since cleaners delete
// what looks old. The holds of such a session last as long as their TTL.
type session struct {
	mu   sync.Mutex
	id   string
	file *os.File
}

// unclosed keeps the garbage collector from closing the file of a Store that
// nobody refers to any more, whose holds may still be believed in.
var unclosed sync.Map

// sessionText is what the file says, for people.
type sessionText struct {
	Format  int       `json:"holdfast"`
	PID     int       `json:"pid"`
	Host    string    `json:"host,omitempty"`
	Started time.Time `json:"started"`
}

const sessionIDLen = 32

func isSessionID(id string) bool {
	data, err := hex.DecodeString(id)
	return err == nil && len(data) == sessionIDLen/2 && hex.EncodeToString(data) == id
}

func (s *Store) sessionPath(id string) string {
	return filepath.Join(s.dir, sessionsFolder, id)
}

// Session returns the file that stands for this Store, or nil if the store is
// closed or the folder cannot be written, where no lock can be taken either. As
// long as the file is open in any process, the holds taken through this Store
// are not mistaken for those of a dead process.
//
// It is for programs that hand their locks to a child: a child that inherits the
// file ([os/exec.Cmd].ExtraFiles) keeps the holds in force until their TTL even
// if this process is killed. The file must not be closed, locked, unlocked or
// written. On Windows a child that inherits it keeps nothing.
func (s *Store) Session() *os.File {
	if _, err := s.ownSession(context.Background()); err != nil {
		return nil
	}
	s.session.mu.Lock()
	defer s.session.mu.Unlock()
	return s.session.file
}

// ownSession returns the id of this Store's session, which it begins when it is
// first needed.
func (s *Store) ownSession(ctx context.Context) (string, error) {
	s.session.mu.Lock()
	defer s.session.mu.Unlock()
	if s.closed.Load() {
		return "", driver.ErrClosed
	}
	for s.session.file == nil {
		if err := s.beginSession(ctx); err != nil {
			return "", err
		}
	}
	return s.session.id, nil
}

// sessionFor returns the session that a hold is to name: none if it is detached.
func (s *Store) sessionFor(ctx context.Context, detached bool) (string, error) {
	if detached {
		return "", nil
	}
	return s.ownSession(ctx)
}

// beginSession leaves the session as it is if the new file was swept before it
// could be locked.
func (s *Store) beginSession(ctx context.Context) error {
	random := make([]byte, sessionIDLen/2)
	rand.Read(random)
	id := hex.EncodeToString(random)
	path := s.sessionPath(id)
	f, err := s.create(path)
	if err != nil {
		return notApplied(fault("create", path, err))
	}
	if err := s.lockSession(ctx, f); err != nil {
		f.Close()
		if errors.Is(err, errSwept) {
			return nil
		}
		os.Remove(path)
		return notApplied(err)
	}
	s.session.id, s.session.file = id, f
	unclosed.Store(f, struct{}{})
	return nil
}

func (s *Store) lockSession(ctx context.Context, f *os.File) error {
	if err := lock(ctx, f, exclusive); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return fault("read", f.Name(), err)
	}
	if !linked(info) {
		return errSwept
	}
	hostname, _ := os.Hostname() // It is only shown.
	text, err := json.Marshal(sessionText{recordFormat, os.Getpid(), hostname, s.host.wall().UTC()})
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(append(text, '\n'), 0); err != nil {
		return fault("write", f.Name(), err)
	}
	return nil
}

// endSession closes the session. Its process goes on, and may believe in holds
// that were not released: they stay until their TTL. So the file is emptied
// before it is unlocked.
func (s *Store) endSession() error {
	s.session.mu.Lock()
	defer s.session.mu.Unlock()
	f := s.session.file
	if f == nil {
		return nil
	}
	s.session.file = nil
	unclosed.Delete(f)
	emptied := f.Truncate(0)
	closed := f.Close()
	if err := os.Remove(f.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(emptied, closed, fault("delete", f.Name(), err))
	}
	return errors.Join(emptied, closed)
}

// isDead reports whether the process of a session is certainly dead.
func (s *Store) isDead(id string) bool {
	if id == "" || id == s.openSession() {
		return false
	}
	return probeSession(s.sessionPath(id), nil)
}

func (s *Store) openSession() string {
	s.session.mu.Lock()
	defer s.session.mu.Unlock()
	if s.session.file == nil {
		return ""
	}
	return s.session.id
}

// probeSession reports whether a session is certainly dead. It takes a shared
// lock, so that two that probe do not take each other for the owner. If the file
// is empty and nobody's, it calls empty, if there is one, before it unlocks it:
// who is about to begin the session cannot go on until then.
func probeSession(path string, empty func(fs.FileInfo)) (dead bool) {
	f, err := os.OpenFile(path, os.O_RDONLY|careful, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	if err := tryLock(f, shared); err != nil {
		return false
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	if info.Size() == 0 && empty != nil {
		empty(info)
	}
	return info.Size() > 0
}
