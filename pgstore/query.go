package pgstore

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// graceTime is how long a statement that has been sent may go on after the context of its call has
// ended. It completes in that time, unless the server or the network hangs. Then its outcome is
// known, the connection is not broken off, and no later request overtakes it.
const graceTime = 500 * time.Millisecond

// A cutError is the error of a single statement of which nothing was sent, because its connection
// had been cut off while it was in the pool. The statement is tried on another.
type cutError struct{ error }

func (e cutError) Unwrap() error { return e.error }

// maxCutTries bounds the number of such tries.
const maxCutTries = 10

// queryRows runs one statement, in a transaction of its own, on a connection of the pool, and calls
// row for each row of the result. begin is called before each try, and discards earlier rows.
func (s *engine) queryRows(ctx context.Context, text string, args []any, begin func(), row func(scanner) error) error {
	return s.queryOnConn(ctx, func(ctx context.Context, c conn, unprepared bool) error {
		begin()
		err := c.query(ctx, unprepared, text, args, row)
		if err != nil && ctx.Err() == nil && pgconn.SafeToRetry(err) {
			return cutError{err}
		}
		return err
	})
}

// queryOnConn runs a transaction on a connection of the pool, with statements that are prepared or
// not. It runs the transaction again if the server has undone it and requests that, which may be
// after the first rows.
func (s *engine) queryOnConn(ctx context.Context, run func(ctx context.Context, c conn, unprepared bool) error) error {
	if err := s.checkUsable(ctx); err != nil {
		return err
	}
	return s.queryUntilDone(ctx, run)
}

func (s *engine) WithConn(ctx context.Context, f func(*pgx.Conn) error) error {
	return s.queryOnConn(ctx, func(_ context.Context, c conn, _ bool) error { return f(c.rawConn()) })
}

func (s *engine) ServerVersion(ctx context.Context) (string, error) {
	var number string
	if err := s.queryRow(ctx, pgclient.VersionQuery, nil, &number); err != nil {
		return "", err
	}
	return "PostgreSQL " + number, nil
}

// queryUntilDone is queryOnConn for what may run while the store closes.
func (s *engine) queryUntilDone(ctx context.Context, run func(ctx context.Context, c conn, unprepared bool) error) error {
	for try := 0; ; try++ {
		unprepared := s.unprepared.Load()
		err := s.queryOnce(ctx, unprepared, run)
		if err == nil {
			return nil
		}
		var cut cutError
		isCut := errors.As(err, &cut) && try < maxCutTries
		if !isCut && !s.isRetryable(err, unprepared) || !pgclient.PauseBeforeRetry(ctx, try) {
			return s.wrapErr(ctx, err)
		}
	}
}

// queryOnce makes one try on a connection of the pool.
func (s *engine) queryOnce(ctx context.Context, unprepared bool, run func(context.Context, conn, bool) error) error {
	c, err := s.acquireConn(ctx)
	if err != nil {
		return driver.NotApplied(err)
	}
	defer c.releaseConn()
	ctx, cancel := withGrace(ctx)
	defer cancel()
	return run(ctx, c, unprepared)
}

// withGrace returns a context that ends graceTime after ctx.
func withGrace(ctx context.Context) (context.Context, context.CancelFunc) {
	long, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(graceTime, cancel)
		context.AfterFunc(long, func() { timer.Stop() })
	})
	return long, func() {
		stop()
		cancel()
	}
}

// isRetryable reports whether the server has undone a statement, prepared or not, that may succeed
// if it is sent again.
func (s *engine) isRetryable(err error, unprepared bool) bool {
	switch pgclient.SQLState(err) {
	case "40001", "40P01":
		// Under REPEATABLE READ and SERIALIZABLE, which may be the default of the server, the
		// second transaction gets this error and must try again.
		return true
	case "26000", "42P05":
		// A prepared statement does not exist, or exists already: a pooler has put another server
		// process behind the connection.
		s.unprepared.Store(true)
		return !unprepared
	}
	return false
}

// queryOptional reads a result of one row, or of none: then the columns mean nothing.
func (s *engine) queryOptional(ctx context.Context, text string, args []any, columns ...any) (found bool, err error) {
	err = s.queryRows(ctx, text, args, func() { found = false }, func(scan scanner) error {
		found = true
		return scan(columns...)
	})
	return found && err == nil, err
}

// queryRow reads a result of one row.
func (s *engine) queryRow(ctx context.Context, text string, args []any, columns ...any) error {
	found, err := s.queryOptional(ctx, text, args, columns...)
	if err == nil && !found {
		return errors.New("the server's answer is not understood: no row")
	}
	return err
}

// execQuery runs a statement and ignores its result.
func (s *engine) execQuery(ctx context.Context, text string, args ...any) error {
	return s.queryRows(ctx, text, args, func() {}, func(scanner) error { return nil })
}

// quotedUser returns the user as an identifier of SQL, NAME if the server does not answer.
func (s *engine) quotedUser(ctx context.Context) string {
	var user string
	if s.queryRow(ctx, "SELECT current_user::text", nil, &user) != nil {
		return "NAME"
	}
	return pgx.Identifier{user}.Sanitize()
}
