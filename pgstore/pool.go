package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// A source supplies connections.
type source interface {
	// acquireConn waits for a connection. The caller calls release when it is done.
	acquireConn(ctx context.Context) (c *pgx.Conn, release func(), err error)
}

// A pool is that of pgx or of package database/sql.
type pool interface {
	source

	// newConfig returns the configuration for a connection outside the pool.
	newConfig(ctx context.Context) (*pgx.ConnConfig, error)

	close()
}

// noneFree explains the error of a pool that has supplied no connection in time, if all are in use.
func noneFree(err error, inUse, most int) error {
	if errors.Is(err, context.DeadlineExceeded) && most > 0 && inUse >= most {
		return fmt.Errorf("no connection of the pool was free in time (%w), %d of %d are in use: "+
			"give the locks a pool of their own, or this one more connections", err, inUse, most)
	}
	return err
}

type pgxPool struct{ *pgxpool.Pool }

func (p pgxPool) acquireConn(ctx context.Context) (*pgx.Conn, func(), error) {
	c, err := p.Acquire(ctx)
	if err != nil {
		stat := p.Stat()
		return nil, nil, noneFree(err, int(stat.AcquiredConns()), int(stat.MaxConns()))
	}
	return c.Conn(), c.Release, nil
}

func (p pgxPool) newConfig(ctx context.Context) (*pgx.ConnConfig, error) {
	return pgclient.ConnConfig(ctx, p.Pool)
}

func (p pgxPool) close() { pgclient.ClosePool(p.Pool) }

type sqlPool struct{ *sql.DB }

func (p sqlPool) acquireConn(ctx context.Context) (*pgx.Conn, func(), error) {
	c, err := p.Conn(ctx)
	if err != nil {
		stats := p.Stats()
		return nil, nil, noneFree(err, stats.InUse, stats.MaxOpenConnections)
	}
	var own *pgx.Conn
	if err := c.Raw(func(raw any) error {
		own = raw.(*stdlib.Conn).Conn()
		return nil
	}); err != nil {
		_ = c.Close()
		return nil, nil, err
	}
	// Close gives it back to the pool, which tests at its next use whether it is broken.
	return own, func() { _ = c.Close() }, nil
}

func (p sqlPool) newConfig(ctx context.Context) (*pgx.ConnConfig, error) {
	c, release, err := p.acquireConn(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	return c.Config(), nil
}

func (p sqlPool) close() { _ = p.Close() } // Open connections are of no use any more.

// A renewSource supplies connections for renewals: of the pool, or one beside it if the pool has
// none free after half of the time, so that no lock is lost while other work uses up the pool.
type renewSource struct{ s *Store }

func (r renewSource) acquireConn(ctx context.Context) (*pgx.Conn, func(), error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return r.s.pool.acquireConn(ctx)
	}
	half, cancel := context.WithDeadline(ctx, time.Now().Add(time.Until(deadline)/2))
	defer cancel()
	c, release, err := r.s.pool.acquireConn(half)
	if err == nil || half.Err() == nil || ctx.Err() != nil {
		return c, release, err
	}
	own, release, ownErr := r.s.connectSpare(ctx)
	if ownErr != nil {
		return nil, nil, err
	}
	return own, release, nil
}

// connectSpare makes the connection beside the pool, when there is no other.
func (s *Store) connectSpare(ctx context.Context) (*pgx.Conn, func(), error) {
	select {
	case s.spare <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	c, err := s.connectDirect(ctx)
	if err != nil {
		<-s.spare
		return nil, nil, err
	}
	return c, func() {
		closeConn(c)
		<-s.spare
	}, nil
}

// connectDirect makes a connection as those of the pool, or to Options.Listen.
func (s *Store) connectDirect(ctx context.Context) (*pgx.Conn, error) {
	if s.listener.direct != nil {
		return pgx.ConnectConfig(ctx, s.listener.direct.Copy())
	}
	var prepare func(context.Context, *pgx.Conn) error
	if p, ok := s.pool.(pgxPool); ok {
		config := p.Config()
		//lint:ignore SA1019 A pool may still have the deprecated hook.
		if config.PrepareConn != nil || config.BeforeAcquire != nil {
			return nil, fmt.Errorf("%w: the pool prepares its connections for each use", driver.ErrUnsupported)
		}
		prepare = config.AfterConnect
	}
	config, err := s.pool.newConfig(ctx)
	if err != nil {
		return nil, err
	}
	c, err := pgx.ConnectConfig(ctx, config)
	if err == nil && prepare != nil {
		if err = prepare(ctx, c); err != nil {
			closeConn(c)
		}
	}
	return c, err
}

// closeConn closes a connection that is no longer used.
func closeConn(c *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.Close(ctx)
}
