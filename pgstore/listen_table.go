package pgstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// markLifetime is how long a mark in a row is valid, and markInterval how often marks that are
// still needed are renewed. A mark is left alone until half of its time is over. A name that is
// watched again within markFreshTime needs no new mark: at least markLifetime/2 - markFreshTime are
// left then, more than markInterval.
const (
	markLifetime  = 60 * time.Second
	markInterval  = 20 * time.Second
	markFreshTime = 5 * time.Second
)

// Watch implements [driver.Watcher]. It returns [driver.ErrUnsupported] if the pool's connections
// lead to a pooler, through which no connection can listen.
func (s *Store) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	if !s.guarantees.Push {
		return nil, driver.ErrUnsupported
	}
	return s.watcher.Watch(ctx, name)
}

// notifyReleased notifies the waiters for a name of its release.
func (s *Store) notifyReleased(name string) {
	s.runInBackground(func() { notifyByPool(s.pool, s.unprepared.Load(), s.options.channel(), name) })
}

// notifyByPool runs pgclient.NotifyStatement on a connection of the pool.
func notifyByPool(p pool, unprepared bool, channel, payload string) {
	ctx, cancel := context.WithTimeout(context.Background(), pgclient.NotifyTimeout)
	defer cancel()
	c, err := p.acquireConn(ctx)
	if err != nil {
		return // Waiters try again by themselves.
	}
	defer c.releaseConn()
	_ = c.query(ctx, unprepared, pgclient.NotifyStatement, []any{channel, payload}, func(scanner) error { return nil }) // As above.
}

// A tableListener listens for the releases of a table. Marks are in the rows, and are made through
// the pool.
type tableListener struct {
	s    *Store
	conn *pgx.Conn

	mu       sync.Mutex
	markedAt map[string]time.Time // when a name was last marked

	// unmarked are watched names with rows that other transactions have locked: a release of such a
	// name may not be notified until the name is marked.
	unmarked   map[string]bool
	cancelWait context.CancelFunc // ends the current wait for notifications
}

// dialListener makes a connection that listens, and marks the names that are watched already.
func (s *Store) dialListener(ctx context.Context) (pgclient.Listener, error) {
	config, err := s.pool.listenConfig(ctx)
	if err != nil {
		return nil, s.wrapErr(ctx, unsentError{err})
	}
	config.OnNotification = nil // It would get the notifications instead of ListenLoop.
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, s.wrapErr(ctx, unsentError{err})
	}
	l := &tableListener{s: s, conn: conn, unmarked: map[string]bool{}}
	if err := l.startListening(ctx); err != nil {
		closeConn(conn)
		return nil, s.wrapErr(ctx, err)
	}
	return l, nil
}

func (l *tableListener) startListening(ctx context.Context) error {
	var pid uint32
	if err := l.conn.QueryRow(ctx, pgclient.PingStatement, pgx.QueryExecModeExec).Scan(&pid); err != nil {
		return err
	}
	if pid != l.conn.PgConn().PID() {
		return fmt.Errorf("%w: a pooler is in the path, through which nobody can listen", driver.ErrUnsupported)
	}
	for _, text := range []string{
		"SET default_transaction_isolation = 'read committed'", // so that no mark has to be made twice
		"LISTEN " + l.s.options.channel(),
	} {
		if _, err := l.conn.Exec(ctx, text, pgx.QueryExecModeExec); err != nil {
			return err
		}
	}
	return l.refreshMarks(ctx, l.s.watcher.WatchedNames())
}

// refreshMarks marks names, which are sorted, on the connection itself. That also shows whether the
// server is reachable.
func (l *tableListener) refreshMarks(ctx context.Context, names []string) error {
	var letters string
	args := append([]any{pgx.QueryExecModeExec}, markArgs(names...)...)
	if err := l.conn.QueryRow(ctx, l.s.queries.await, args...).Scan(&letters); err != nil {
		return err
	}
	for i, name := range names {
		if l.recordMark(name, i < len(letters) && letters[i] == 'm') {
			// The transaction has ended: its changes were not notified.
			l.s.watcher.SignalName(name)
		}
	}
	return nil
}

// recordMark records whether a name is marked. It returns true if the name was unmarked before and
// is marked now.
func (l *tableListener) recordMark(name string, marked bool) (remarked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	remarked = marked && l.unmarked[name]
	switch {
	case !marked && l.s.watcher.IsWatched(name):
		l.unmarked[name] = true
		if len(l.unmarked) == 1 && l.cancelWait != nil {
			l.cancelWait()
		}
	default:
		delete(l.unmarked, name)
	}
	return remarked
}

// unmarkedNames returns the names that have no mark, sorted.
func (l *tableListener) unmarkedNames() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.unmarked))
}

// markArgs returns the arguments of the statement that marks names, which are sorted.
func markArgs(names ...string) []any { return []any{arrayLiteral(names), ceilMicros(markLifetime)} }

// AddWaiterMark implements [pgclient.Listener]. If another transaction has locked the row of the name,
// ListenLoop marks it later.
func (l *tableListener) AddWaiterMark(ctx context.Context, name string) error {
	l.mu.Lock()
	last := l.markedAt[name]
	l.mu.Unlock()
	now := time.Now()
	if now.Sub(last) < markFreshTime {
		return nil
	}
	var letters string
	if err := l.s.queryRow(ctx, l.s.queries.await, markArgs(name), &letters); err != nil {
		return err
	}
	if l.recordMark(name, letters == "m"); letters != "m" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.markedAt == nil || len(l.markedAt) >= maxCachedNames {
		l.markedAt = map[string]time.Time{}
	}
	l.markedAt[name] = now
	return nil
}

// RemoveWaiterMark implements [pgclient.Listener]. Marks expire.
func (l *tableListener) RemoveWaiterMark(string) {}

// ListenLoop implements [pgclient.Listener]. At intervals it marks the watched names anew, and more often
// those that could not be marked.
func (l *tableListener) ListenLoop(ctx context.Context) {
	nextRefresh := time.Now().Add(markInterval)
	for l.listenUntil(ctx, nextRefresh) {
		names := l.unmarkedNames()
		if !time.Now().Before(nextRefresh) {
			names, nextRefresh = l.s.watcher.WatchedNames(), time.Now().Add(markInterval)
		} else if len(names) == 0 {
			continue
		}
		check, cancel := context.WithTimeout(ctx, pgclient.ListenTimeout)
		err := l.refreshMarks(check, names)
		cancel()
		if err != nil {
			return
		}
	}
}

// listenUntil forwards notifications until a time, or for a moment while there are unmarked names.
// It returns false if the connection has failed or ctx has ended.
func (l *tableListener) listenUntil(ctx context.Context, until time.Time) bool {
	l.mu.Lock()
	if len(l.unmarked) > 0 {
		until = earliest(until, time.Now().Add(openRowRetry))
	}
	limit, cancel := context.WithDeadline(ctx, until)
	l.cancelWait = cancel
	l.mu.Unlock()
	defer cancel()
	for {
		note, err := l.conn.WaitForNotification(limit)
		if err != nil {
			return limit.Err() != nil && ctx.Err() == nil
		}
		l.s.nameCache.setUnknown(note.Payload)
		l.s.watcher.SignalName(note.Payload)
	}
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func (l *tableListener) Close() { closeConn(l.conn) }

// closeConn closes a connection that is no longer used.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
