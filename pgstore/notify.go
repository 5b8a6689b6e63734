package pgstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/retry"
)

const (
	// listenTimeout bounds the set-up of a connection that listens, and each test of it.
	listenTimeout = 5 * time.Second

	// tellTimeout bounds a notification. The answers that it follows wait for it.
	tellTimeout = 500 * time.Millisecond

	// listenPing is how often a connection that listens is tested.
	listenPing = 20 * time.Second

	// listenDelay is the time from the first entry of a Store to its LISTEN. A program that ends
	// sooner needs no second connection.
	listenDelay = 100 * time.Millisecond
)

// Notify implements [driver.Notifier].
func (s *Store) Notify(f func(name, owner string, token int64)) (stop func()) {
	return s.notices.Notify(f)
}

// tagOf returns the tag of an entry, as function notice of the server makes it: a hash that tells
// nothing of the secret of the owner, and the name. The payload of a notification is the token of
// an entry, or 0, and its tag.
func tagOf(name, owner string) string {
	sum := sha256.Sum256([]byte(name + "\x00" + owner))
	return hex.EncodeToString(sum[:16]) + " " + name
}

// listen listens until the store is closed, or until it turns out to be impossible.
func (s *Store) listen() {
	_ = retry.Sleep(s.ctx, listenDelay)
	for failures := 0; s.ctx.Err() == nil; failures++ {
		conn, err := s.dialListener()
		if errors.Is(err, driver.ErrUnsupported) {
			slog.Warn("holdfast: a pooler is in the path to PostgreSQL, through which nobody can listen: waiters look from time to time instead; "+
				"give the address of the server itself as Options.Listen, or as listen_url in the URL", "schema", s.schema)
			return
		}
		if err == nil {
			s.notices.Send("", "", 0) // What was sent before is lost.
			failures = 0
			s.forward(conn)
			closeConn(conn)
		} else if failures == 1 && s.ctx.Err() == nil { // once
			slog.Warn("holdfast: cannot listen to PostgreSQL, waiters look from time to time instead", "schema", s.schema, "error", err)
		}
		_ = retry.Sleep(s.ctx, retry.Backoff(failures, 50*time.Millisecond, 2*time.Second))
	}
}

// dialListener makes a connection that listens, and looks whether the functions are up to date.
func (s *Store) dialListener() (_ *pgx.Conn, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, listenTimeout)
	defer cancel()
	c, err := s.spare.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	conn := c.Hijack()
	var pid uint32
	var applied int
	err = conn.QueryRow(ctx, s.sql("SELECT pg_catalog.pg_backend_pid(), @.edition()"), pgx.QueryExecModeExec).Scan(&pid, &applied)
	if err == nil && applied < edition {
		slog.Warn("holdfast: the functions in PostgreSQL are those of an earlier version, with its faults: run \"holdfast migrate\", or Store.Migrate", "schema", s.schema)
	}
	if err == nil && pid != conn.PgConn().PID() {
		err = fmt.Errorf("%w: a pooler is in the path", driver.ErrUnsupported)
	}
	if err == nil {
		_, err = conn.Exec(ctx, "LISTEN "+s.channel, pgx.QueryExecModeExec)
	}
	if err != nil {
		closeConn(conn)
		return nil, err
	}
	return conn, nil
}

// forward passes on the notifications of a connection until it fails or the store is closed.
func (s *Store) forward(conn *pgx.Conn) {
	for {
		ctx, cancel := context.WithTimeout(s.ctx, listenPing)
		note, err := conn.WaitForNotification(ctx)
		cancel()
		if err == nil {
			number, tag, _ := strings.Cut(note.Payload, " ")
			s.notices.Receive(tag, number)
			continue
		}
		var replaced bool // by a new primary, to which the address may lead by now
		ctx, cancel = context.WithTimeout(s.ctx, listenTimeout)
		err = conn.QueryRow(ctx, "SELECT pg_catalog.current_setting('transaction_read_only')::boolean", pgx.QueryExecModeExec).Scan(&replaced)
		cancel()
		if err != nil || replaced {
			return
		}
	}
}

// tell sends the notices that a function of the server has returned, in a transaction of their own.
// After an error the owners learn of it when they renew.
func (s *Store) tell(ctx context.Context, told []string) {
	if len(told) > 0 {
		ctx, cancel := context.WithTimeout(ctx, tellTimeout)
		defer cancel()
		_, _ = query(ctx, s, s.acquireInTime, "SELECT 1 FROM @.tell($1)", []any{told}, pgx.RowTo[int])
	}
}
