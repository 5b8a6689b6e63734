package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// A pool supplies connections.
type pool interface {
	// acquireConn waits for a connection.
	acquireConn(ctx context.Context) (conn, error)

	// listenConfig returns the configuration for a connection outside the pool.
	listenConfig(ctx context.Context) (*pgx.ConnConfig, error)

	close()
}

// A conn is a connection that has been acquired from a pool, or that has a transaction open.
type conn interface {
	// query runs a statement and calls row for each row of its result; row reads it by calling
	// scan. With unprepared set, the statement is sent without being prepared.
	query(ctx context.Context, unprepared bool, text string, args []any, row func(scan scanner) error) error

	// rawConn returns the connection of pgx.
	rawConn() *pgx.Conn

	// releaseConn gives the connection back to the pool.
	releaseConn()
}

// transact runs f in a transaction of its own, READ COMMITTED. f does not release the conn.
func transact(ctx context.Context, p pool, f func(conn) error) error {
	c, err := p.acquireConn(ctx)
	if err != nil {
		return err
	}
	defer c.releaseConn()
	return pgx.BeginTxFunc(ctx, c.rawConn(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		return f(pgxConn{tx.Conn(), tx, nil})
	})
}

// A scanner reads the columns of a row.
type scanner func(columns ...any) error

// noneFree explains the error of a pool that has supplied no connection in time, if all are in use.
func noneFree(err error, inUse, most int) error {
	if errors.Is(err, context.DeadlineExceeded) && most > 0 && inUse >= most {
		return fmt.Errorf("no connection of the pool was free in time (%w), %d of %d are in use: "+
			"give the locks a pool of their own, or this one more connections", err, inUse, most)
	}
	return err
}

// pgxPool is a pool of pgx.
type pgxPool struct{ *pgxpool.Pool }

func (p pgxPool) acquireConn(ctx context.Context) (conn, error) {
	c, err := p.Acquire(ctx)
	if err != nil {
		stat := p.Stat()
		return nil, noneFree(err, int(stat.AcquiredConns()), int(stat.MaxConns()))
	}
	return pgxConn{c.Conn(), c, c.Release}, nil
}

// connect makes a connection outside the pool, as the pool makes its own.
func (p pgxPool) connect(ctx context.Context) (*pgx.Conn, error) {
	config := p.Config()
	//lint:ignore SA1019 A pool may still have the deprecated hook.
	if config.PrepareConn != nil || config.BeforeAcquire != nil {
		return nil, fmt.Errorf("%w: the pool prepares its connections for each use", driver.ErrUnsupported)
	}
	connConfig, err := p.listenConfig(ctx)
	if err != nil {
		return nil, err
	}
	c, err := pgx.ConnectConfig(ctx, connConfig)
	if err == nil && config.AfterConnect != nil {
		if err = config.AfterConnect(ctx, c); err != nil {
			p.disconnect(c)
		}
	}
	return c, err
}

// disconnect closes a connection that connect has made.
func (p pgxPool) disconnect(c *pgx.Conn) {
	if hook := p.Config().BeforeClose; hook != nil {
		hook(c)
	}
	closeConn(c)
}

func (p pgxPool) listenConfig(ctx context.Context) (*pgx.ConnConfig, error) {
	return pgclient.ConnConfig(ctx, p.Pool)
}

func (p pgxPool) close() { pgclient.ClosePool(p.Pool) }

// A pgxConn is a connection of pgx: of the pool, or outside it, or in a transaction.
type pgxConn struct {
	conn    *pgx.Conn
	queryer interface {
		Query(ctx context.Context, text string, args ...any) (pgx.Rows, error)
	}
	release func() // nil in a transaction
}

func (c pgxConn) releaseConn() { c.release() }

func (c pgxConn) rawConn() *pgx.Conn { return c.conn }

func (c pgxConn) query(ctx context.Context, unprepared bool, text string, args []any, row func(scanner) error) error {
	rows, err := c.queryer.Query(ctx, text, withMode(unprepared, args)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// withMode makes pgx send an unprepared statement without preparing it. Otherwise the pool's mode
// is used.
func withMode(unprepared bool, args []any) []any {
	if !unprepared {
		return args
	}
	return append([]any{pgx.QueryExecModeExec}, args...)
}
