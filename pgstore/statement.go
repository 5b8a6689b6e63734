package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// graceTime is how long a statement that has been sent may go on after the deadline of its call. It
// completes in that time, unless the server or the network hangs. Then its outcome is known, the
// connection is not broken off, and no later request overtakes it.
const graceTime = 500 * time.Millisecond

// maxTries bounds the tries on connections that turn out to be of no use.
const maxTries = 10

// query runs one statement, in a transaction of its own, and returns its rows. The text has the
// schema as @. Statements are prepared if the pool prepares its own, until it turns out that a
// pooler in the path has no prepared statements.
func query[T any](ctx context.Context, s *Store, from source, text string, args []any, row pgx.RowToFunc[T]) (all []T, err error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	return queryClosing(ctx, s, from, text, args, row)
}

// queryClosing is query for what may run while the store closes.
func queryClosing[T any](ctx context.Context, s *Store, from source, text string, args []any, row pgx.RowToFunc[T]) (all []T, err error) {
	err = s.run(ctx, from, func(ctx context.Context, c *pgx.Conn) error {
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

// run runs a transaction on a connection. It runs the transaction again if that is certain to have
// had no effect, and may succeed then: the server has undone it in favor of another one, or the
// connection was cut off before, or leads to a server that is a standby by now.
func (s *Store) run(ctx context.Context, from source, f func(context.Context, *pgx.Conn) error) error {
	for try := 0; ; try++ {
		again, err := s.runOnce(ctx, from, f)
		if err == nil {
			return nil
		}
		undone := pgclient.SQLState(err) == "40001" || pgclient.SQLState(err) == "40P01"
		if !undone && (!again || try >= maxTries) || !pgclient.PauseBeforeRetry(ctx, try) {
			return s.wrapErr(ctx, err)
		}
	}
}

// runOnce makes one try, and reports whether another connection may do better.
func (s *Store) runOnce(ctx context.Context, from source, f func(context.Context, *pgx.Conn) error) (again bool, err error) {
	c, release, err := from.acquireConn(ctx)
	if err != nil {
		return false, driver.NotApplied(err)
	}
	defer release()
	sent := ctx
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		sent, cancel = context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(graceTime))
		defer cancel()
	}
	prepared := !s.unprepared.Load()
	err = f(sent, c)
	switch {
	case err == nil || ctx.Err() != nil:
		return false, err
	case pgclient.SQLState(err) == "26000" || pgclient.SQLState(err) == "42P05":
		// A prepared statement does not exist, or exists already: a pooler has put another server
		// process behind the connection.
		s.unprepared.Store(true)
		return prepared, err
	case pgclient.SQLState(err) == readOnly:
		closeConn(c) // The pool makes another, which the address may lead to the new primary.
		return true, err
	}
	return pgconn.SafeToRetry(err), err
}
