package pgstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// An advisoryEar is a session that listens, and that marks live in. A mark is a
// shared lock on a key that is made from that of the lock: a releaser that
// cannot have it for itself knows that somebody waits. The order makes it
// impossible that a wake-up is lost: whoever waits makes his mark first, and then
// tries once more; whoever releases unlocks first, and then looks for marks.
type advisoryEar struct {
	s    *AdvisoryStore
	on   *session
	over chan struct{} // closed when the session has ended

	mu    sync.Mutex
	deaf  bool
	marks map[string]*mark // by key
}

// A mark is one that the server has been asked for.
type mark struct {
	key  Key
	done chan struct{} // closed when the server has answered
	err  error
	idle *time.Timer
}

// markLinger is for how long a mark stays when nobody needs it any more: whoever
// waits often for a name need not make it anew each time.
const markLinger = time.Second

// markTries is how often a mark is tried to be made, in half a second or so. It is
// refused while somebody looks for it, at the end of a release.
const markTries = 40

var (
	errMarkRefused = errors.New("another program has locked the key that stands for those who wait for the lock")
	errMarksFull   = errors.New("the lock table has no room for those who wait: see AdvisoryOptions.MaxLocks")
)

var markStatements = map[string]string{
	"holdfast_mark":   "SELECT pg_try_advisory_lock_shared($1::int, $2::int)",
	"holdfast_unmark": "SELECT pg_advisory_unlock_shared($1::int, $2::int)",
	"holdfast_tell":   notifyStatement,
	"holdfast_ping":   pingStatement,
}

// mark is the key that stands for those who wait for k. It is a pair, since most
// locks are not, and its first integer is negative, which programs that number
// things do not come to; the other 63 bits are of a hash of its own. If it meets
// a key that is in use all the same, some wait for longer, and no lock is had
// twice.
func (k Key) mark() Key {
	sum := sha256.Sum256([]byte("holdfast waits for\x1f" + k.String()))
	return Key{bits: int64(binary.BigEndian.Uint64(sum[:8]) | 1<<63), pair: true}
}

// mark implements ear.
func (e *advisoryEar) mark(ctx context.Context, name string) error {
	for try := 0; ; try++ {
		m, err := e.request(name)
		if err != nil {
			return err
		}
		if err := settle(ctx, m.done); err != nil {
			return err
		}
		if !errors.Is(m.err, errMarkRefused) || try == markTries || !pause(ctx, try) {
			return e.s.fault(m.err)
		}
	}
}

// request returns the mark of a name, and asks for it if there is none.
func (e *advisoryEar) request(name string) (*mark, error) {
	e.s.mu.Lock()
	full := e.s.full()
	e.s.mu.Unlock()
	e.mu.Lock()
	if m := e.marks[name]; m != nil {
		e.mu.Unlock()
		return m, nil
	}
	key, err := readKey(name)
	if err == nil && full {
		err = fmt.Errorf("%w: %w", driver.ErrNotApplied, errMarksFull)
	}
	if err != nil {
		e.mu.Unlock()
		return nil, err
	}
	m := &mark{key: key.mark(), done: make(chan struct{})}
	m.idle = time.AfterFunc(markLinger, func() { e.expire(name, m) })
	e.marks[name] = m
	e.count()
	e.mu.Unlock()
	e.on.send(statement{name: "holdfast_mark", params: m.key.params(), done: func(value []byte, err error) { e.marked(name, m, value, err) }})
	return m, nil
}

// marked is the answer to a request.
func (e *advisoryEar) marked(name string, m *mark, value []byte, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil && (len(value) != 1 || value[0] == 0) {
		err = errMarkRefused
	}
	if err != nil {
		m.err = err
		e.forget(name, m)
	}
	close(m.done)
}

// unmark implements ear.
func (e *advisoryEar) unmark(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if m := e.marks[name]; m != nil {
		m.idle.Reset(markLinger)
	}
}

// expire gives back a mark that nobody needs. Marks are counted by the server, so
// that it does no harm when the same one is asked for again at this moment.
func (e *advisoryEar) expire(name string, m *mark) {
	e.mu.Lock()
	if e.deaf || e.marks[name] != m {
		e.mu.Unlock()
		return
	}
	if !m.settled() || e.s.watcher.isWatched(name) {
		m.idle.Reset(markLinger) // The end of a watch is not told to an ear that is not ready yet.
		e.mu.Unlock()
		return
	}
	e.forget(name, m)
	e.mu.Unlock()
	e.on.send(statement{name: "holdfast_unmark", params: m.key.params(), done: func([]byte, error) {}})
}

// settled reports whether the server has answered.
func (m *mark) settled() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// forget leaves a mark out. The caller holds e.mu.
func (e *advisoryEar) forget(name string, m *mark) {
	m.idle.Stop()
	if e.marks[name] == m {
		delete(e.marks, name)
	}
	e.count()
}

// count has the store know how many marks there are. The caller holds e.mu.
func (e *advisoryEar) count() {
	if !e.deaf {
		e.s.marks.Store(int32(len(e.marks)))
	}
}
