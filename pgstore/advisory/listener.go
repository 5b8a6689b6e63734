package advisory

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// channel is the channel on which releases are notified, with the key as payload.
const channel = "holdfast_advisory"

// listenerIdleTimeout is how long a connection that listens may be silent. The server ends the
// connection of a process that hangs, since its marks would make others notify it.
const listenerIdleTimeout = time.Minute

// listenerCheckInterval is how often the connection is checked, and checksPerPing how many checks
// there are between two pings. notifyReplyTimeout bounds the wait for the reply to a notification.
const (
	listenerCheckInterval = time.Second
	checksPerPing         = int(listenerIdleTimeout / 3 / listenerCheckInterval)
	notifyReplyTimeout    = 250 * time.Millisecond
)

// notifyReleased notifies the waiters for a key of its release. It does not use the session of the
// lock: the commit may have to wait for those of others, and no lock should. The caller holds s.mu.
func (s *Store) notifyReleased(key Key) {
	if s.closed {
		return
	}
	s.running.Go(func() {
		if l := s.watcher.listener(); l != nil && l.notifyWaiters(key.String()) {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), pgclient.NotifyTimeout)
		defer cancel()
		// After an error, waiters try again by themselves.
		_, _ = s.pool.Exec(ctx, notifyStatement, channel, key.String())
	})
}

// notifyWaiters notifies the waiters for a key of its release, and reports whether it succeeded. It
// does not wait for a connection that does not reply: waiters may be notified twice, but not late.
func (l *markListener) notifyWaiters(name string) bool {
	if late, _ := l.session.progress(time.Now()); late > notifyReplyTimeout {
		return false
	}
	result := make(chan error, 1)
	l.session.sendStatement(statement{
		name:           "holdfast_notify",
		params:         [][]byte{[]byte(channel), []byte(name)},
		ownTransaction: true,
		done:           func(_ []byte, err error) { result <- err },
	})
	limit := time.NewTimer(notifyReplyTimeout)
	defer limit.Stop()
	select {
	case err := <-result:
		return err == nil // An end of the session is a reply, too.
	case <-limit.C:
		return false
	}
}

// dialListener makes a connection that listens, and adds marks for the names that are watched
// already.
func (s *Store) dialListener(ctx context.Context) (*markListener, error) {
	listen := func(ctx context.Context, conn *pgx.Conn, _ serverInfo) error {
		_, err := conn.PgConn().Exec(ctx, "LISTEN "+channel).ReadAll()
		return err
	}
	sess, err := s.openSession(ctx, listenerIdleTimeout, markStatements, listen)
	if err != nil {
		return nil, err
	}
	l := &markListener{s: s, session: sess, ended: make(chan struct{}), marks: map[string]*waiterMark{}}
	sess.onNotification, sess.onEnded = s.watcher.signalName, l.onSessionEnded
	s.running.Go(sess.readReplies)
	if err := l.addAllMarks(ctx, s.watcher.watchedNames()); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// addAllMarks adds marks for names, of which there may be many: it requests all before it waits for
// the first reply.
func (l *markListener) addAllMarks(ctx context.Context, names []string) error {
	for _, name := range names {
		_, _ = l.requestMark(name) // addWaiterMark returns the same error.
	}
	for _, name := range names {
		// After another error, waiters for that name try at intervals.
		if err := l.addWaiterMark(ctx, name); errors.Is(err, errSessionLost) || ctx.Err() != nil {
			return cmp.Or(err, ctx.Err())
		}
	}
	return nil
}

// listenLoop returns when the connection fails or ctx ends. It pings the server at intervals. The
// session passes notifications to the watcher.
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
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.marksDropped {
		l.marksDropped = true
		l.s.markCount.Store(0)
	}
}
