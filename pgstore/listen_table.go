package pgstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
)

// For how long a mark in a row is good, and how often those are made anew that
// are still needed. A mark is left alone until half of its time is over.
// Whoever watches a name again within markFresh need not ask for it again.
const (
	markFor   = 60 * time.Second
	markEvery = 20 * time.Second
	markFresh = 5 * time.Second // Half of markFor is left then, but for this, and more than markEvery.
)

// Watch implements [driver.Watcher]. It returns [driver.ErrUnsupported] if the
// pool's connections lead to a pooler, where nobody can listen.
func (s *Store) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if !s.can.Push {
		return nil, driver.ErrUnsupported
	}
	return s.watcher.watch(ctx, name)
}

// tell has those who wait for a name told that it was released.
func (s *Store) tell(name string) {
	s.spawn(func() { notify(s.pool, s.plain.Load(), s.options.channel(), name) })
}

// A tableEar listens for the releases of a table. Marks are in the rows, and are
// made through the pool.
type tableEar struct {
	s    *Store
	conn *pgx.Conn

	mu    sync.Mutex
	fresh map[string]time.Time // when a name was last marked
}

// listen makes a connection that listens, and marks the names that are watched
// already.
func (s *Store) listen(ctx context.Context) (ear, error) {
	config, err := s.pool.listenConfig(ctx)
	if err != nil {
		return nil, err
	}
	config.OnNotification = nil // It would get the notifications instead of hear.
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	e := &tableEar{s: s, conn: conn}
	if err := e.begin(ctx); err != nil {
		hangUp(conn)
		return nil, err
	}
	return e, nil
}

func (e *tableEar) begin(ctx context.Context) error {
	var pid uint32
	if err := e.conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid); err != nil {
		return err
	}
	if pid != e.conn.PgConn().PID() {
		return fmt.Errorf("%w: a pooler is in the path, through which nobody can listen", driver.ErrUnsupported)
	}
	for _, text := range []string{
		"SET default_transaction_isolation = 'read committed'", // so that no mark has to be made twice
		"LISTEN " + e.s.options.channel(),
	} {
		if _, err := e.conn.Exec(ctx, text, pgx.QueryExecModeExec); err != nil {
			return err
		}
	}
	return e.refresh(ctx)
}

// refresh marks the names that are watched, on the connection itself, which also
// shows whether the server is there.
func (e *tableEar) refresh(ctx context.Context) error {
	args := append([]any{pgx.QueryExecModeExec}, markOf(e.s.watcher.watched()...)...)
	_, err := e.conn.Exec(ctx, e.s.text.await, args...)
	return err
}

// markOf returns the arguments of the statement that marks names, which come
// sorted.
func markOf(names ...string) []any { return []any{array(names), micros(markFor)} }

// mark implements ear.
func (e *tableEar) mark(ctx context.Context, name string) error {
	e.mu.Lock()
	last := e.fresh[name]
	e.mu.Unlock()
	now := time.Now()
	if now.Sub(last) < markFresh {
		return nil
	}
	if err := e.s.exec(ctx, e.s.text.await, markOf(name)...); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fresh == nil || len(e.fresh) >= maxMemory {
		e.fresh = map[string]time.Time{}
	}
	e.fresh[name] = now
	return nil
}

// unmark implements ear. Marks run out.
func (e *tableEar) unmark(string) {}

// tell implements ear. The connection waits for notifications, and can do nothing
// else.
func (e *tableEar) tell(string) bool { return false }

// hear implements ear. From time to time it marks the watched names anew.
func (e *tableEar) hear(ctx context.Context) {
	for e.hearFor(ctx, markEvery) {
		check, cancel := context.WithTimeout(ctx, listenBound)
		err := e.refresh(check)
		cancel()
		if err != nil {
			return
		}
	}
}

// hearFor passes notifications on for a while, and reports whether it can go on.
func (e *tableEar) hearFor(ctx context.Context, while time.Duration) bool {
	limit, cancel := context.WithTimeout(ctx, while)
	defer cancel()
	for {
		note, err := e.conn.WaitForNotification(limit)
		if err != nil {
			return limit.Err() != nil && ctx.Err() == nil
		}
		e.s.seen.forget(note.Payload)
		e.s.watcher.wake(note.Payload)
	}
}

func (e *tableEar) close() { hangUp(e.conn) }

// hangUp closes a connection of which nothing is expected any more.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
