package advisory

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// A markListener is a session that listens, and that holds marks. A mark is a shared lock on a key
// that is made from the key of the lock. If a releaser cannot lock that key exclusively, there is a
// waiter. The order prevents lost wake-ups. A waiter first adds its mark, and then tries once more. A
// releaser first unlocks, and then checks for marks.
type markListener struct {
	s       *engine
	session *session
	ended   chan struct{} // closed when the session has ended

	marks map[Key]*waiterMark // guarded by Store.mu; nil when they have ended
}

// A waiterMark is a mark that was requested from the server.
type waiterMark struct {
	done     chan struct{} // closed when the server has replied
	answered bool
	err      error
}

// maxMarkTries bounds the attempts to add a mark, which take about half a second. An attempt is
// refused while a release checks for the mark.
const maxMarkTries = 40

var (
	errMarkRefused = errors.New("another program has locked the key that stands for those who wait for the lock")
	errMarksFull   = errors.New("the lock table has no room for those who wait: see Options.MaxLocks")
)

// notifyStatement notifies the listeners on a channel of a release. It comes after the release: a
// commit that notifies holds up all other commits of the server that do. It does not wait for the
// disk.
const notifyStatement = "SELECT pg_catalog.set_config('synchronous_commit'::text, 'off'::text, true), pg_catalog.pg_notify($1::text, $2::text)"

var markStatements = map[string]string{
	"holdfast_mark":       "SELECT pg_catalog.pg_try_advisory_lock_shared($1::int, $2::int)",
	"holdfast_unmark":     "SELECT pg_catalog.pg_advisory_unlock_shared($1::int, $2::int)",
	"holdfast_close_gate": "SELECT pg_catalog.pg_try_advisory_lock($1::int, $2::int)",
	"holdfast_open_gate":  "SELECT pg_catalog.pg_advisory_unlock($1::int, $2::int)",
	"holdfast_ping":       pgclient.PingStatement,
}

// waiterKey returns the key of the mark of waiters for k. It is a pair, since most locks are not.
// Its first integer is negative, which programs that number things do not use. The other 63 bits
// are from a hash of its own. If it still collides with a key in use, some waits are longer, and no
// lock is granted twice.
func (k Key) waiterKey() Key {
	return k.derivedKey("holdfast waits for")
}

func (k Key) derivedKey(purpose string) Key {
	sum := sha256.Sum256([]byte(purpose + "\x1f" + k.String()))
	return Key{bits: int64(binary.BigEndian.Uint64(sum[:8]) | 1<<63), pair: true}
}

// addWaiterMark returns when releases of a key are notified from now on. Its error matches
// errSessionLost if the connection has ended.
func (l *markListener) addWaiterMark(ctx context.Context, key Key) error {
	for try := 0; ; try++ {
		m, err := l.requestMark(key)
		if err != nil {
			return err
		}
		if err := waitUntilDone(ctx, m.done); err != nil {
			return err
		}
		if !errors.Is(m.err, errMarkRefused) || try == maxMarkTries || !pgclient.PauseBeforeRetry(ctx, try) {
			return l.s.wrapErr(m.err)
		}
	}
}

// requestMark returns the mark of a key, and requests it if there is none.
func (l *markListener) requestMark(key Key) (*waiterMark, error) {
	l.s.mu.Lock()
	m := l.marks[key]
	var err error
	switch {
	case l.marks == nil:
		err = errSessionLost
	case m == nil && l.s.lockLimitReached():
		err = fmt.Errorf("%w: %w", driver.ErrNotApplied, errMarksFull)
	}
	if m != nil || err != nil {
		l.s.mu.Unlock()
		return m, err
	}
	m = &waiterMark{done: make(chan struct{})}
	l.marks[key] = m
	l.s.mu.Unlock()
	l.session.sendStatement(statement{
		name:   "holdfast_mark",
		params: key.waiterKey().binaryParams(),
		done:   func(value []byte, err error) { l.onMarked(key, m, value, err) },
	})
	return m, nil
}

// onMarked handles the reply to requestMark.
func (l *markListener) onMarked(key Key, m *waiterMark, value []byte, err error) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if err == nil && (len(value) != 1 || value[0] == 0) {
		err = errMarkRefused
	}
	if err != nil {
		delete(l.marks, key)
	}
	m.err, m.answered = err, true
	close(m.done)
}

// dropUnusedMarks unlocks the marks of keys without waiters. listenLoop calls it at intervals, so
// frequent waits for a name need not add its mark each time. The server counts the locks of a key,
// so it does no harm when the same mark is requested again at this moment.
func (l *markListener) dropUnusedMarks() {
	var unused []Key
	l.s.mu.Lock()
	for key, m := range l.marks {
		if m.answered && !l.s.hasWaiters(key) {
			delete(l.marks, key)
			unused = append(unused, key)
		}
	}
	l.s.mu.Unlock()
	for _, key := range unused {
		l.session.sendStatement(statement{name: "holdfast_unmark", params: key.waiterKey().binaryParams(), done: func([]byte, error) {}})
	}
}

// The gate of a key is a second key. It keeps later readers out while a writer waits, so that
// readers that overlap do not starve the writer. A writer that was refused because of shared holds
// locks the gate on the connection that listens. A shared attempt locks the gate for a moment, and
// is refused if it cannot. The server unlocks the gate when the session of the writer ends.
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
func (s *engine) closeGate(ctx context.Context, key Key, req *olddriver.AcquireRequest, behindShared bool) {
	listener, id := s.listener(), ownedName{req.Name, req.Owner}
	s.mu.Lock()
	w := s.waiters[key][id]
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
				wanted := s.waiters[key][id] == w && w.gate != listener.session
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
func (s *engine) openGate(sess *session, key Key) (done <-chan struct{}) {
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
