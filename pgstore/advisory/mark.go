package advisory

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// A markListener is a session that listens, and that holds marks. A mark is a shared lock on a key
// that is made from the key of the lock. If a releaser cannot lock that key exclusively, there is a
// waiter. The order prevents lost wake-ups. A waiter first adds its mark, and then tries once more. A
// releaser first unlocks, and then checks for marks.
type markListener struct {
	s       *Store
	session *session
	ended   chan struct{} // closed when the session has ended

	mu           sync.Mutex
	marksDropped bool
	marks        map[string]*waiterMark // by key
}

// A waiterMark is a mark that was requested from the server.
type waiterMark struct {
	key       Key
	done      chan struct{} // closed when the server has replied
	err       error
	idleTimer *time.Timer
}

// markIdleTime is how long an unused mark stays, so that frequent waits for a name need not add it
// each time.
const markIdleTime = time.Second

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
	"holdfast_notify":     notifyStatement,
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

// addWaiterMark returns when releases of a name are notified from now on. Its error matches
// errSessionLost if the connection has ended.
func (l *markListener) addWaiterMark(ctx context.Context, name string) error {
	for try := 0; ; try++ {
		m, err := l.requestMark(name)
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

// requestMark returns the mark of a name, and requests it if there is none.
func (l *markListener) requestMark(name string) (*waiterMark, error) {
	l.s.mu.Lock()
	full := l.s.lockLimitReached()
	l.s.mu.Unlock()
	l.mu.Lock()
	if m := l.marks[name]; m != nil {
		l.mu.Unlock()
		return m, nil
	}
	key, err := readKey(name)
	if err == nil && full {
		err = fmt.Errorf("%w: %w", driver.ErrNotApplied, errMarksFull)
	}
	if err != nil {
		l.mu.Unlock()
		return nil, err
	}
	m := &waiterMark{key: key.waiterKey(), done: make(chan struct{})}
	m.idleTimer = time.AfterFunc(markIdleTime, func() { l.expireMark(name, m) })
	l.marks[name] = m
	l.updateMarkCount()
	l.mu.Unlock()
	l.session.sendStatement(statement{
		name:   "holdfast_mark",
		params: m.key.binaryParams(),
		done:   func(value []byte, err error) { l.onMarked(name, m, value, err) },
	})
	return m, nil
}

// onMarked handles the reply to requestMark.
func (l *markListener) onMarked(name string, m *waiterMark, value []byte, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && (len(value) != 1 || value[0] == 0) {
		err = errMarkRefused
	}
	if err != nil {
		m.err = err
		l.removeMark(name, m)
	}
	close(m.done)
}

// removeWaiterMark is called when the last watch of a name has ended. The mark stays for
// markIdleTime.
func (l *markListener) removeWaiterMark(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := l.marks[name]; m != nil {
		m.idleTimer.Reset(markIdleTime)
	}
}

// expireMark unlocks a mark that is no longer used. The server counts the locks of a key, so it
// does no harm when the same mark is requested again at this moment.
func (l *markListener) expireMark(name string, m *waiterMark) {
	l.mu.Lock()
	if l.marksDropped || l.marks[name] != m {
		l.mu.Unlock()
		return
	}
	if !m.isAnswered() || l.s.watcher.isWatched(name) {
		// The end of a watch is not reported to a listener that is not ready yet.
		m.idleTimer.Reset(markIdleTime)
		l.mu.Unlock()
		return
	}
	l.removeMark(name, m)
	l.mu.Unlock()
	l.session.sendStatement(statement{name: "holdfast_unmark", params: m.key.binaryParams(), done: func([]byte, error) {}})
}

// isAnswered reports whether the server has replied.
func (m *waiterMark) isAnswered() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// removeMark removes a mark. The caller holds l.mu.
func (l *markListener) removeMark(name string, m *waiterMark) {
	m.idleTimer.Stop()
	if l.marks[name] == m {
		delete(l.marks, name)
	}
	l.updateMarkCount()
}

// updateMarkCount updates the store's count of marks. The caller holds l.mu.
func (l *markListener) updateMarkCount() {
	if !l.marksDropped {
		l.s.markCount.Store(int32(len(l.marks)))
	}
}
