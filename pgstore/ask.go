package pgstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// grace is for how long a statement that has been sent may go on when the
// context of its call has ended. In that time it comes to its end, unless the
// server or the network hangs: then its outcome is known, the connection is not
// broken off, and no later request overtakes it.
const grace = 500 * time.Millisecond

// ask runs one statement, in a transaction of its own, on a connection of the
// pool, and calls row for each row of the result. It is sent again where the
// server has undone it and asks for that, which may be after the first rows:
// begin is called before each try, and forgets what there was.
func (s *Store) ask(ctx context.Context, text string, args []any, begin func(), row func(scanner) error) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	for try := 0; ; try++ {
		begin()
		plain := s.plain.Load()
		err := s.once(ctx, plain, text, args, row)
		if err == nil {
			return nil
		}
		if !s.again(err, plain) || !pause(ctx, try) {
			return s.fault(ctx, err)
		}
	}
}

func (s *Store) once(ctx context.Context, plain bool, text string, args []any, row func(scanner) error) error {
	c, err := s.pool.take(ctx)
	if err != nil {
		return unsent{err}
	}
	defer c.free()
	ctx, cancel := linger(ctx)
	defer cancel()
	return c.query(ctx, plain, text, args, row)
}

// linger returns a context that ends a while after ctx.
func linger(ctx context.Context) (context.Context, context.CancelFunc) {
	long, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(grace, cancel)
		context.AfterFunc(long, func() { timer.Stop() })
	})
	return long, func() {
		stop()
		cancel()
	}
}

// again reports whether a statement, which was plain or not, was undone by the
// server and may succeed if it is sent again.
func (s *Store) again(err error, plain bool) bool {
	switch sqlState(err) {
	case "40001", "40P01":
		// Under REPEATABLE READ and SERIALIZABLE, which may be the default of
		// the server, whoever comes second is told to try again.
		return true
	case "26000", "42P05":
		// A prepared statement is not there, or is there already: a pooler has
		// put another server process behind the connection.
		s.plain.Store(true)
		return !plain
	}
	return false
}

// pause waits a moment, longer with every try, and reports whether the context
// has not ended.
func pause(ctx context.Context, try int) bool {
	timer := time.NewTimer(rand.N(time.Millisecond << min(try, 5)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// maybe reads a result of one row, or of none: then the columns mean nothing.
func (s *Store) maybe(ctx context.Context, text string, args []any, columns ...any) (found bool, err error) {
	err = s.ask(ctx, text, args, func() { found = false }, func(scan scanner) error {
		found = true
		return scan(columns...)
	})
	return found && err == nil, err
}

// one reads a result of one row.
func (s *Store) one(ctx context.Context, text string, args []any, columns ...any) error {
	found, err := s.maybe(ctx, text, args, columns...)
	if err == nil && !found {
		return errors.New("the server's answer is not understood: no row")
	}
	return err
}

// exec runs a statement whose result is of no interest.
func (s *Store) exec(ctx context.Context, text string, args ...any) error {
	return s.ask(ctx, text, args, func() {}, func(scanner) error { return nil })
}
