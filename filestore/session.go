package filestore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// A session represents one open Store. It is a file that the Store keeps exclusively locked from
// before its first hold to its end. When the process dies, the kernel closes the file. A process
// that can lock it then knows that its holds have no owner. A detached hold belongs to no session.
//
// An empty file belongs to a session that is just being made or was properly closed, and proves
// nothing. A missing file proves nothing either, since cleaners delete files that look old. The
// holds of such a session last for their TTL.
type session struct {
	mu   sync.Mutex
	id   string
	file *os.File
}

// openSessionFiles keeps the garbage collector from closing the file of a Store that is no longer
// referenced, while its holds may still be in use.
var openSessionFiles sync.Map

const sessionIDLen = 32

// randomHex returns a random name of size bytes, in hexadecimal digits.
func randomHex(size int) string {
	random := make([]byte, size)
	rand.Read(random)
	return hex.EncodeToString(random)
}

func isSessionID(id string) bool {
	data, err := hex.DecodeString(id)
	return err == nil && len(data) == sessionIDLen/2 && hex.EncodeToString(data) == id
}

// Session implements [Store.Session].
func (s *engine) Session() *os.File {
	if _, err := s.ensureSession(context.Background()); err != nil {
		return nil
	}
	s.session.mu.Lock()
	defer s.session.mu.Unlock()
	return s.session.file
}

// ensureSession returns the id of this Store's session. It creates the session when it is first
// needed.
func (s *engine) ensureSession(ctx context.Context) (string, error) {
	s.session.mu.Lock()
	defer s.session.mu.Unlock()
	if s.closed.Load() {
		return "", driver.ErrClosed
	}
	for s.session.file == nil {
		if err := s.createSession(ctx); err != nil {
			return "", err
		}
	}
	return s.session.id, nil
}

// sessionFor returns the session that a hold names: none if it is detached.
func (s *engine) sessionFor(ctx context.Context, detached bool) (string, error) {
	if detached {
		return "", nil
	}
	return s.ensureSession(ctx)
}

// createSession leaves the session unset if the new file was swept before it was locked, or the
// folder was deleted.
func (s *engine) createSession(ctx context.Context) error {
	id := randomHex(sessionIDLen / 2)
	folder, err := s.currentFolder(true)
	if err != nil {
		return err
	}
	f, err := folder.createFile(folder.sessions, id)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, os.ErrClosed) {
		s.invalidate(folder)
		return driver.NotApplied(ctx.Err())
	}
	if err != nil {
		return notApplied("create", s.sessionPath(id), err)
	}
	err = lock(ctx, f, exclusive)
	if err == nil {
		err = s.beginSession(f)
	}
	if err != nil {
		f.Close()
		if errors.Is(err, errSwept) {
			return nil
		}
		_ = folder.sessions.Remove(id)
		return driver.NotApplied(err)
	}
	s.session.id, s.session.file = id, f
	openSessionFiles.Store(f, struct{}{})
	return nil
}

// beginSession writes a session file, for people.
func (s *engine) beginSession(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return wrapErr("read", f.Name(), err)
	}
	if isUnlinked(info) {
		return errSwept
	}
	_, err = fmt.Fprintf(f, "%s%d,\"pid\":%d,\"started\":%q}\n", sessionPrefix, recordFormat, os.Getpid(), timeOfDay(s.host.wall()))
	return wrapErr("write", f.Name(), err)
}

// closeSession closes the session. Its process goes on, and may still rely on holds that were not
// released: they stay until their TTL. So the file is emptied before it is unlocked.
func (s *engine) closeSession() error {
	s.session.mu.Lock()
	defer s.session.mu.Unlock()
	f := s.session.file
	if f == nil {
		return nil
	}
	s.session.file = nil
	openSessionFiles.Delete(f)
	emptied := f.Truncate(0)
	closed := f.Close()
	err := os.Remove(f.Name())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(emptied, closed, wrapErr("delete", f.Name(), err))
	}
	return errors.Join(emptied, closed)
}

// isSessionDead reports whether the process of a session is certainly dead.
func (s *engine) isSessionDead(id string) bool {
	if id == "" || id == s.currentSessionID() {
		return false
	}
	f, err := s.currentFolder(false)
	return err == nil && f.sessions != nil && probeSession(f.sessions, id, nil)
}

func (s *engine) currentSessionID() string {
	s.session.mu.Lock()
	defer s.session.mu.Unlock()
	if s.session.file == nil {
		return ""
	}
	return s.session.id
}

// probeSession reports whether a session is certainly dead. It uses a shared lock, so that two
// concurrent probes do not mistake each other for the owner. If the file is empty and not locked by
// its owner, probeSession calls empty, if that is not nil, before it unlocks the file: the creator
// of the session cannot go on until then.
func probeSession(d *dir, id string, empty func(fs.FileInfo)) (dead bool) {
	f, err := d.Open(id)
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
	begin := make([]byte, len(sessionPrefix))
	n, _ := f.ReadAt(begin, 0)
	return string(begin[:n]) == sessionPrefix
}

// sessionPrefix is the first bytes of every session file. A file that begins in another way is not
// one, and stays.
const sessionPrefix = `{"holdfast":`
