package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

const (
	// graceTime is how long a call may go on after its deadline, so that a statement completes
	// unless the server or the network hangs, even on a busy disk. The outcome of a completed
	// statement is known, its connection stays open, and no later request overtakes it.
	graceTime = time.Second

	// maxTries bounds the tries on connections that turn out to be of no use.
	maxTries = 10
)

// A source supplies a connection.
type source func(context.Context) (*pgxpool.Conn, error)

// acquireInTime is the source for renewals, so that no lock is lost while other work uses up the
// pool. It waits for the pool for a second, or a part of the time that the call has if that is
// less, and for the spare connection after that. With Options.Listen the spare connection, which no
// pooler holds up, comes first, and the pool after it, also if the spare one cannot be made.
func (s *Store) acquireInTime(ctx context.Context) (*pgxpool.Conn, error) {
	from, other, patience := s.pool.Acquire, s.spare.Acquire, time.Second
	if s.direct != nil {
		from, other = other, from
	}
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		patience = min(patience, max(left-graceTime, left/2)/2)
	}
	first, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := from(first)
	if err != nil && (first.Err() != nil || s.direct != nil) {
		if second, secondErr := other(ctx); secondErr == nil {
			return second, nil
		}
	}
	return c, err
}

// withGrace returns a context that ends graceTime after the deadline of ctx, and not before,
// canceled or not. Without a deadline it is ctx.
func withGrace(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(graceTime))
}

// query runs one statement, in a transaction of its own, and returns its rows. In the text @ is the
// schema. Statements are prepared if the pool prepares its own, until an error shows that a pooler
// in the path has no prepared statements.
func query[T any](ctx context.Context, s *Store, from source, text string, args []any, row pgx.RowToFunc[T]) (all []T, err error) {
	err = s.run(ctx, from, func(c *pgx.Conn) error {
		sent := args
		if s.unprepared.Load() {
			sent = append([]any{pgx.QueryExecModeExec}, args...)
		}
		rows, err := c.Query(ctx, s.sql(text), sent...)
		if err == nil {
			all, err = pgx.CollectRows(rows, row)
		}
		return err
	})
	return all, err
}

// run runs a transaction on a connection. It runs the transaction again if it has certainly had no
// effect and may succeed now: the server has undone it in favor of another one, the connection was
// cut before, a prepared statement was missing, or the server takes no writes.
func (s *Store) run(ctx context.Context, from source, f func(*pgx.Conn) error) error {
	for try := 0; ; try++ {
		c, err := from(ctx)
		if err != nil {
			return s.wrapErr(ctx, driver.NotApplied(fmt.Errorf("no connection of the pool: %w", err)))
		}
		prepared := !s.unprepared.Load()
		err = f(c.Conn())
		again := pgconn.SafeToRetry(err) && try < maxTries
		switch pgclient.SQLState(err) {
		case "40001", "40P01":
			again = true
		case "26000", "42P05":
			// A prepared statement does not exist, or exists already: a pooler has led
			// the connection to another server process.
			s.unprepared.Store(true)
			again = prepared
		case readOnly, noPlaces:
			closeConn(c.Conn()) // The pool dials again: the address may lead to a new primary by now.
			again = try < maxTries
		}
		c.Release()
		if err == nil {
			return nil
		}
		if !again || retry.Sleep(ctx, retry.Backoff(try, time.Millisecond, 32*time.Millisecond)) != nil {
			return s.wrapErr(ctx, err)
		}
	}
}

// closeConn closes a connection that is no longer used.
func closeConn(c *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.Close(ctx)
}
