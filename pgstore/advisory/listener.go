package advisory

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// channel is the channel on which releases are notified, with the key as payload.
const channel = "holdfast_advisory"

// listenerIdleTimeout is how long a connection that listens may be silent. The server ends the
// connection of a process that hangs, since its marks would make others notify it.
const listenerIdleTimeout = time.Minute

// listenerCheckInterval is how often the connection is checked, and checksPerPing how many checks
// there are between two pings.
const (
	listenerCheckInterval = time.Second
	checksPerPing         = int(listenerIdleTimeout / 3 / listenerCheckInterval)
)

// notifyReleased notifies the waiters for a key of its release. It does not use the session of the
// lock: the commit may have to wait for those of others, and no lock should. The caller holds s.mu.
func (s *engine) notifyReleased(key Key) {
	if s.closed {
		return
	}
	s.running.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), pgclient.NotifyTimeout)
		defer cancel()
		// After an error, waiters try again by themselves.
		_, _ = s.pool.Exec(ctx, notifyStatement, channel, key.String())
	})
}

// listen listens until the store is closed, or until listening turns out to be impossible. A
// waiter leaves a mark for releasers on the connection. A releaser that sees the mark sends a
// notification. A release without waiters never sends one.
func (s *engine) listen() {
	connectedBefore := false // there was a connection before
	for failures := 0; ; failures++ {
		ctx, cancel := context.WithTimeout(s.ctx, pgclient.ListenTimeout)
		current, err := s.dialListener(ctx)
		cancel()
		s.setListener(current, err) // From now on no release is missed.
		if err == nil {
			if connectedBefore {
				s.signalAll() // Releases since the last connection ended were not notified.
			}
			connectedBefore, failures = true, 0
			current.listenLoop(s.ctx)
			current.close()
		}
		if errors.Is(err, driver.ErrUnsupported) || pgclient.PauseBeforeReconnect(s.ctx, failures) != nil {
			return
		}
		s.setListener(nil, nil)
	}
}

// setListener sets the connection that listens, or why there is none. Both are nil while one is
// being made.
func (s *engine) setListener(l *markListener, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listening, s.listenErr = l, err
	close(s.listenChanged)
	s.listenChanged = make(chan struct{})
}

// listener returns the connection that listens now, or nil if there is none.
func (s *engine) listener() *markListener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listening
}

// ensureMarked returns when the releases of a key are notified from now on. It makes further
// attempts while servers hang.
func (s *engine) ensureMarked(ctx context.Context, key Key) error {
	s.listenOnce.Do(func() { s.running.Go(s.listen) })
	for {
		s.mu.Lock()
		l, err, changed := s.listening, s.listenErr, s.listenChanged
		s.mu.Unlock()
		if l != nil {
			err = l.addWaiterMark(ctx, key)
		}
		hasReply := l != nil || err != nil
		if hasReply && (ctx.Err() != nil || !errors.Is(err, errSessionLost) && !errors.Is(err, context.DeadlineExceeded)) {
			return err
		}
		if err := waitUntilDone(ctx, changed); err != nil {
			return err
		}
	}
}

// openListener makes a connection that listens, and adds marks for the keys that have waiters
// already.
func (s *engine) openListener(ctx context.Context) (*markListener, error) {
	listen := func(ctx context.Context, conn *pgx.Conn, _ serverInfo) error {
		_, err := conn.PgConn().Exec(ctx, "LISTEN "+channel).ReadAll()
		return err
	}
	sess, err := s.openSession(ctx, listenerIdleTimeout, markStatements, listen)
	if err != nil {
		return nil, err
	}
	l := &markListener{s: s, session: sess, ended: make(chan struct{}), marks: map[Key]*waiterMark{}}
	sess.onNotification, sess.onEnded = s.onNotification, l.onSessionEnded
	s.running.Go(sess.readReplies)
	if err := l.addAllMarks(ctx); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// addAllMarks adds marks for all keys with waiters, of which there may be many: it requests all
// before it waits for the first reply.
func (l *markListener) addAllMarks(ctx context.Context) error {
	keys := l.s.keysWithWaiters()
	for _, key := range keys {
		_, _ = l.requestMark(key) // addWaiterMark returns the same error.
	}
	for _, key := range keys {
		// After another error, waiters for that key try at intervals.
		if err := l.addWaiterMark(ctx, key); errors.Is(err, errSessionLost) || ctx.Err() != nil {
			return cmp.Or(err, ctx.Err())
		}
	}
	return nil
}

// listenLoop returns when the connection fails or ctx ends. It pings the server and drops unused
// marks at intervals. The session passes notifications to the store.
func (l *markListener) listenLoop(ctx context.Context) {
	ticker := time.NewTicker(listenerCheckInterval)
	defer ticker.Stop()
	for checks := 1; ; checks++ {
		select {
		case <-ctx.Done():
			return
		case <-l.ended:
			return
		case <-ticker.C:
		}
		if late, _ := l.session.progress(time.Now()); late > pgclient.ListenTimeout {
			return
		}
		l.dropUnusedMarks()
		if checks%checksPerPing == 0 {
			l.session.sendStatement(statement{name: "holdfast_ping", done: func([]byte, error) {}})
		}
	}
}

// onSessionEnded handles the end of the session, and of the marks with it.
func (l *markListener) onSessionEnded(cause error) (notify func()) {
	l.s.mu.Lock()
	l.s.recordOrphan(l.session, cause)
	l.s.mu.Unlock()
	l.dropMarks()
	return func() { close(l.ended) }
}

// close drops the marks and closes the connection.
func (l *markListener) close() {
	l.dropMarks()
	l.session.closeGracefully()
}

// dropMarks drops the marks, which end with the session.
func (l *markListener) dropMarks() {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.marks = nil
}
