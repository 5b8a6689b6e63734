package advisory

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Bounds of the idle timeout of a session. Below the minimum, connections would be made again and
// again. Above the maximum, the server cannot count.
const (
	minIdleTimeout = time.Second
	maxIdleTimeout = 24 * 24 * time.Hour
)

// maxEmptyTime is how long a connection without locks is kept.
const maxEmptyTime = time.Minute

// maxSessions bounds the sessions with locks. Each TTL in use needs one, since the server can end a
// silent session only as a whole.
const maxSessions = 4

// idleTimeoutFor returns the idle timeout that a session needs for a hold to last its TTL.
func idleTimeoutFor(ttl time.Duration) time.Duration {
	ms := (ttl + time.Millisecond - 1).Truncate(time.Millisecond)
	return max(ms, minIdleTimeout)
}

// A sessionDial is a connection being made. Its error is set before done is closed.
type sessionDial struct {
	done chan struct{}
	err  error
}

// assignSession assigns a lease to a session with an idle timeout that fits the TTL: the lease
// lasts its TTL there, and the server ends the session soon after that if it is silent.
func (s *engine) assignSession(ctx context.Context, l *lease, ttl time.Duration) (*session, error) {
	want := idleTimeoutFor(ttl)
	for {
		sess, d, err := s.pickSession(l, want)
		if err != nil {
			return nil, err
		}
		if sess != nil {
			s.ensureTimeout(sess, want)
			return sess, nil
		}
		select {
		case <-d.done:
			if d.err != nil {
				return nil, driver.NotApplied(d.err)
			}
		case <-ctx.Done():
			return nil, driver.NotApplied(fmt.Errorf("no connection to PostgreSQL yet: %w", ctx.Err()))
		}
	}
}

// pickSession picks a session for a lease, or returns a dial to wait for.
func (s *engine) pickSession(l *lease, want time.Duration) (*session, *sessionDial, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, driver.ErrClosed
	}
	if s.lockLimitReached() {
		return nil, nil, fmt.Errorf("%w: this store holds %d advisory locks, and may hold no more, "+
			"since the server's lock table has room for about %d: see Options.MaxLocks and max_locks_per_transaction",
			driver.ErrNotApplied, s.maxLocks(), s.capacity)
	}
	sess := s.bestFit(want)
	if sess == nil {
		return nil, s.startDial(want), nil
	}
	l.session = sess
	sess.lastUsed = time.Now()
	sess.leaseCount++
	return sess, nil, nil
}

// lockLimitReached reports whether the store may not have more locks: leases that have a session,
// and marks. The caller holds s.mu.
func (s *engine) lockLimitReached() bool {
	n := 0
	if s.listening != nil {
		n = len(s.listening.marks)
	}
	for _, sess := range s.sessions {
		n += sess.leaseCount
	}
	most := s.maxLocks()
	return most > 0 && n >= most
}

func (s *engine) maxLocks() int {
	if s.options.MaxLocks > 0 {
		return s.options.MaxLocks
	}
	return s.capacity / 2
}

// bestFit returns the session that fits best, or nil if a new one is to be made. The caller holds
// s.mu.
func (s *engine) bestFit(want time.Duration) *session {
	now := time.Now()
	var best *session
	usable := 0
	for _, sess := range s.sessions {
		stale := sess.leaseCount == 0 && now.Sub(sess.lastUsed) > sess.idleTimeout-sess.idleTimeout/8
		if stale || sess.overdue(now) {
			continue
		}
		if sess.idleTimeout == want {
			return sess
		}
		usable++
		// The shortest that is long enough, or else the longest: the server has to accept its
		// silence for longer.
		if best == nil || best.idleTimeout < want && sess.idleTimeout > best.idleTimeout ||
			sess.idleTimeout > want && sess.idleTimeout < best.idleTimeout {
			best = sess
		}
	}
	if usable < maxSessions {
		return nil
	}
	return best
}

// ensureTimeout raises the session's idle timeout to at least want, for what is sent after it.
func (s *engine) ensureTimeout(sess *session, want time.Duration) {
	s.mu.Lock()
	fits := sess.idleTimeout >= want
	s.mu.Unlock()
	if fits {
		return
	}
	s.raiseTimeout(sess, want, func(_ []byte, err error) {
		if err != nil {
			sess.closeNow()
		}
	})
}

// raiseTimeout raises the idle timeout of a session. The timeout never decreases: one in use is
// never below the TTL of a hold. raiseTimeout also keeps the server from giving up the connection
// sooner, as TCP may when nothing arrives from the other end. The reply is that of a ping.
func (s *engine) raiseTimeout(sess *session, want time.Duration, done func([]byte, error)) {
	sess.mu.Lock() // Timeouts are sent in the order in which they rise.
	sess.targetTimeout = max(sess.targetTimeout, want)
	timeout := sess.targetTimeout
	st := statement{
		name:           "holdfast_idle_timeout",
		params:         idleTimeoutParams(timeout),
		ownTransaction: true,
		done: func(value []byte, err error) {
			if err == nil {
				s.mu.Lock()
				sess.idleTimeout = max(sess.idleTimeout, timeout)
				s.mu.Unlock()
			}
			done(value, err)
		},
	}
	lost := sess.enqueue(st)
	sess.mu.Unlock()
	if lost != nil {
		st.done(nil, lost)
	}
}

// idleTimeoutParams returns the timeout for the server in milliseconds and in seconds. A session
// with locks is never silent for as long as maxIdleTimeout while its process runs: see maintain.
func idleTimeoutParams(timeout time.Duration) [][]byte {
	ms := min(timeout, maxIdleTimeout).Milliseconds()
	seconds := (ms + 999) / 1000
	const most = 32767 // that Linux accepts
	return [][]byte{strconv.AppendInt(nil, ms, 10), strconv.AppendInt(nil, min(seconds, most), 10)}
}

// startDial returns the dial that is under way, and starts one if there is none. The caller holds
// s.mu.
func (s *engine) startDial(timeout time.Duration) *sessionDial {
	if s.dial != nil {
		return s.dial
	}
	d := &sessionDial{done: make(chan struct{})}
	s.dial = d
	s.running.Go(func() {
		sess, err := s.openLockSession(timeout)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.dial, d.err = nil, err
		if err == nil {
			d.err = s.addSession(sess)
		}
		close(d.done)
	})
	return d
}

// addSession adds a new session to the store. The caller holds s.mu.
func (s *engine) addSession(sess *session) error {
	if s.closed {
		sess.closeNow()
		return driver.ErrClosed
	}
	sess.lastUsed = time.Now()
	s.sessions = append(slices.Clone(s.sessions), sess)
	sess.maintainTimer = time.AfterFunc(maintainInterval(sess.idleTimeout), func() { s.maintain(sess) })
	s.running.Go(sess.readReplies)
	return nil
}

// removeSession removes a session from the store. The caller holds s.mu.
func (s *engine) removeSession(sess *session) {
	s.sessions = slices.DeleteFunc(slices.Clone(s.sessions), func(other *session) bool { return other == sess })
	sess.maintainTimer.Stop()
}

// closeIdle ends a session without locks. The caller holds s.mu.
func (s *engine) closeIdle(sess *session) {
	s.removeSession(sess)
	s.running.Go(sess.closeGracefully)
}

func maintainInterval(idleTimeout time.Duration) time.Duration {
	return min(idleTimeout/4, maxEmptyTime/4)
}

// maintain ends a session that has no locks any more, and one that the server must have given up.
// It pings a session with locks and a long TTL, so that no network device drops the connection.
func (s *engine) maintain(sess *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.sessions, sess) {
		return
	}
	now := time.Now()
	waited, _ := sess.progress(now)
	switch {
	case waited > sess.idleTimeout || waited > replyTimeout && sess.leaseCount == 0:
		sess.closeNow()
	case sess.leaseCount == 0 && waited == 0 && now.Sub(sess.lastUsed) >= min(sess.idleTimeout/2, maxEmptyTime):
		s.closeIdle(sess)
		return
	case sess.leaseCount > 0 && waited == 0 && sess.idleTimeout >= 2*maxEmptyTime:
		s.running.Go(func() { sess.sendStatement(statement{name: "holdfast_ping", done: func([]byte, error) {}}) })
	}
	sess.maintainTimer.Reset(maintainInterval(sess.idleTimeout))
}
