package advisory

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// The gate of a key is a second key. It keeps later readers out while a writer waits, so that
// readers that overlap do not starve the writer. A writer that was refused because of shared holds
// locks the gate on the connection that listens. A shared attempt locks the gate for a moment, and is
// refused if it cannot. The server unlocks the gate when the session of the writer ends.
//
// One session at a time can have the gate. The writers of other sessions get a notice when it is
// unlocked, which is after the grant. No reader is granted the key during that hold.

// maxGateTries bounds the attempts to lock a gate. Each may find it locked by a shared attempt.
// maxGateReply bounds the wait for a connection that hangs.
const (
	maxGateTries = 4
	maxGateReply = time.Second
)

// gateKey returns the key of the gate of k, which is made as that of the mark is. If it collides
// with a key in use, readers may be refused.
func (k Key) gateKey() Key { return k.derivedKey("holdfast keeps readers from") }

// closeGate locks the gate for an exclusive waiter, if this attempt or an earlier one was refused
// because of shared holds. It returns at once if the gate is locked for that waiter already.
func (s *Store) closeGate(ctx context.Context, key Key, req *driver.AcquireRequest, behindShared bool) {
	listener, id := s.watcher.listener(), ownedName{req.Name, req.Owner}
	s.mu.Lock()
	w := s.waiters[id]
	if w == nil || listener == nil {
		s.mu.Unlock()
		return
	}
	w.behindShared = w.behindShared || behindShared
	needed := w.behindShared && w.gate != listener.session
	s.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, maxGateReply)
	defer cancel()
	for try := 0; needed && try < maxGateTries; try++ {
		if try > 0 && !pgclient.PauseBeforeRetry(limited, try) {
			return
		}
		result := make(chan bool, 1)
		listener.session.sendStatement(statement{
			name:   "holdfast_close_gate",
			params: key.gateKey().binaryParams(),
			done: func(value []byte, err error) {
				locked := err == nil && len(value) == 1 && value[0] == 1
				s.mu.Lock()
				wanted := s.waiters[id] == w && w.gate != listener.session
				if locked && wanted {
					w.gate = listener.session
				}
				s.mu.Unlock()
				if err != nil || locked && !wanted {
					s.openGate(listener.session, key) // It may have been locked before something failed.
				}
				result <- err == nil && !locked
			},
		})
		select {
		case needed = <-result:
		case <-limited.Done():
			return
		}
	}
}

// openGate unlocks a gate that was locked in a session, and notifies the waiters of the key. The
// returned channel is closed when the server has replied.
func (s *Store) openGate(sess *session, key Key) (done <-chan struct{}) {
	opened := make(chan struct{})
	sess.sendStatement(statement{
		name:   "holdfast_open_gate",
		params: key.gateKey().binaryParams(),
		done: func([]byte, error) {
			s.mu.Lock()
			s.notifyReleased(key)
			s.mu.Unlock()
			close(opened)
		},
	})
	return opened
}
