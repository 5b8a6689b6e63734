package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// A source waits for a connection. The caller calls release when it is done with it.
type source func(ctx context.Context) (c *pgx.Conn, release func(), err error)

// A pool is that of pgx or of package database/sql.
type pool interface {
	acquire(ctx context.Context) (c *pgx.Conn, release func(), err error) // a source

	// dial makes a connection beside the pool, as the pool does.
	dial(ctx context.Context) (*pgx.Conn, error)

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

func (p pgxPool) acquire(ctx context.Context) (*pgx.Conn, func(), error) {
	c, err := p.Acquire(ctx)
	if err != nil {
		stat := p.Stat()
		return nil, nil, noneFree(err, int(stat.AcquiredConns()), int(stat.MaxConns()))
	}
	return c.Conn(), c.Release, nil
}

func (p pgxPool) dial(ctx context.Context) (*pgx.Conn, error) {
	return pgclient.Dial(ctx, p.Pool, leaveNotices)
}

func (p pgxPool) close() { pgclient.ClosePool(p.Pool) }

type sqlPool struct {
	*sql.DB
	config *atomic.Pointer[pgx.ConnConfig] // that of the first connection that was used
}

func (p sqlPool) acquire(ctx context.Context) (*pgx.Conn, func(), error) {
	c, err := p.Conn(ctx)
	if err != nil {
		stats := p.Stats()
		return nil, nil, noneFree(err, stats.InUse, stats.MaxOpenConnections)
	}
	var own *pgx.Conn
	if err := c.Raw(func(raw any) error {
		own = raw.(*stdlib.Conn).Conn()
		if p.config.Load() == nil {
			p.config.Store(own.Config())
		}
		return nil
	}); err != nil {
		_ = c.Close()
		return nil, nil, err
	}
	// Close gives it back to the pool, which tests at its next use whether it is broken.
	return own, func() { _ = c.Close() }, nil
}

func (p sqlPool) dial(ctx context.Context) (*pgx.Conn, error) {
	config := p.config.Load()
	if config == nil {
		return nil, errors.New("no connection of the pool has been used yet")
	}
	return connect(ctx, config)
}

func (p sqlPool) close() { _ = p.Close() } // Open connections are of no use any more.

// dial makes a connection beside the pool, to Options.Listen if there is one.
func (s *Store) dial(ctx context.Context) (*pgx.Conn, error) {
	if s.listener.direct != nil {
		return connect(ctx, s.listener.direct)
	}
	return s.pool.dial(ctx)
}

func connect(ctx context.Context, config *pgx.ConnConfig) (*pgx.Conn, error) {
	config = config.Copy()
	leaveNotices(config)
	return pgx.ConnectConfig(ctx, config)
}

// leaveNotices has the listener get the notifications.
func leaveNotices(config *pgx.ConnConfig) { config.OnNotification = nil }

// forRenewals is the pool as a source, or one connection beside it if the pool has none free after
// half of the time, so that no lock is lost while other work uses up the pool. It sets *byListen
// if that is the connection of Options.Listen, which may lead to another server.
func (s *Store) forRenewals(ctx context.Context, byListen *bool) (*pgx.Conn, func(), error) {
	*byListen = false
	deadline, ok := ctx.Deadline()
	if !ok {
		return s.pool.acquire(ctx)
	}
	half, cancel := context.WithDeadline(ctx, time.Now().Add(time.Until(deadline)/2))
	defer cancel()
	c, release, err := s.pool.acquire(half)
	if err == nil || half.Err() == nil {
		return c, release, err
	}
	select {
	case s.spare <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, err
	}
	c, dialErr := s.dial(ctx)
	if dialErr != nil {
		<-s.spare
		return nil, nil, err
	}
	*byListen = s.listener.direct != nil
	return c, func() {
		closeConn(c)
		<-s.spare
	}, nil
}

// closeConn closes a connection that is no longer used.
func closeConn(c *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.Close(ctx)
}
