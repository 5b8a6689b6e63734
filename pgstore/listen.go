package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
)

// The bounds of what the watcher does with its connection, and the pauses
// between attempts to make one.
const (
	listenBound  = 5 * time.Second
	minReconnect = 50 * time.Millisecond
	maxReconnect = 2 * time.Second
)

// notifyBound is for how long a release may take to be told.
const notifyBound = 2 * time.Second

// notify tells those who listen that a name was released. It is a statement of
// its own, after the release: a commit that notifies holds up all other commits
// of the server that do. It does not wait for the disk.
func (s *Store) notify(name string) {
	s.spawn(func() {
		ctx, cancel := context.WithTimeout(context.Background(), notifyBound)
		defer cancel()
		c, err := s.pool.take(ctx)
		if err != nil {
			return // Those who wait try again by themselves.
		}
		defer c.free()
		_ = c.query(ctx, s.plain.Load(), "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)", []any{s.options.channel(), name}, func(scanner) error { return nil })
	})
}

// run listens until the store is closed, or until it turns out that nobody can.
func (w *watcher) run() {
	for failures := 0; ; failures++ {
		conn, err := w.connect()
		w.settle(err)
		if err == nil {
			failures = 0
			w.receive(conn)
			hangUp(conn)
		}
		if errors.Is(err, driver.ErrUnsupported) {
			return
		}
		if err == nil {
			w.reset()
			w.wakeAll()
		}
		if !sleep(w.s.ctx, reconnectPause(failures)) {
			return
		}
		if err != nil {
			w.reset()
		}
	}
}

func reconnectPause(failures int) time.Duration {
	pause := min(minReconnect<<min(failures, 10), maxReconnect)
	return pause/2 + rand.N(pause/2)
}

// settle tells those who wait for the link what has become of it. From then on
// no release is missed.
func (w *watcher) settle(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.link.err = err
	close(w.link.done)
}

// reset begins another link.
func (w *watcher) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.link = &link{done: make(chan struct{})}
}

// connect makes a connection that listens.
func (w *watcher) connect() (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(w.s.ctx, listenBound)
	defer cancel()
	config, err := w.s.pool.listenConfig(ctx)
	if err != nil {
		return nil, err
	}
	config.OnNotification = nil // It would get the notifications instead of receive.
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := w.begin(ctx, conn); err != nil {
		hangUp(conn)
		return nil, err
	}
	return conn, nil
}

// begin listens, and marks the names that are watched already.
func (w *watcher) begin(ctx context.Context, conn *pgx.Conn) error {
	var pid uint32
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid); err != nil {
		return err
	}
	if pid != conn.PgConn().PID() {
		return fmt.Errorf("%w: a pooler is in the path, through which nobody can listen", driver.ErrUnsupported)
	}
	for _, text := range []string{
		"SET default_transaction_isolation = 'read committed'", // so that no mark has to be made twice
		"LISTEN " + w.s.options.channel(),
	} {
		if _, err := conn.Exec(ctx, text, pgx.QueryExecModeExec); err != nil {
			return err
		}
	}
	return w.mark(ctx, conn)
}

// mark marks the names that are watched.
func (w *watcher) mark(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, w.s.text.await, append([]any{pgx.QueryExecModeExec}, markOf(w.watched()...)...)...)
	return err
}

// receive passes notifications on until the connection fails. From time to time
// it marks the watched names anew, which also shows whether the server is there.
func (w *watcher) receive(conn *pgx.Conn) {
	for {
		ctx, cancel := context.WithTimeout(w.s.ctx, markEvery)
		for {
			note, err := conn.WaitForNotification(ctx)
			if err != nil {
				break
			}
			w.s.seen.forget(note.Payload)
			w.wake(note.Payload)
		}
		late := ctx.Err() != nil
		cancel()
		if !late || w.s.ctx.Err() != nil {
			return
		}
		ctx, cancel = context.WithTimeout(w.s.ctx, listenBound)
		err := w.mark(ctx, conn)
		cancel()
		if err != nil {
			return
		}
	}
}

// hangUp closes a connection of which nothing is expected any more.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// sleep reports whether the time has passed and ctx has not ended.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
