package pgstore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/driver"
)

// sqlPool is a pool of package database/sql.
type sqlPool struct{ *sql.DB }

// usesPgx reports whether the driver is pgx's.
func (p sqlPool) usesPgx() bool {
	_, ok := p.Driver().(*stdlib.Driver)
	return ok
}

func (p sqlPool) acquireConn(ctx context.Context) (conn, error) {
	c, err := p.Conn(ctx)
	if err != nil {
		stats := p.Stats()
		return nil, noneFree(err, stats.InUse, stats.MaxOpenConnections)
	}
	return sqlConn{c, c, p.usesPgx()}, nil
}

func (p sqlPool) transact(ctx context.Context, f func(conn) error) error {
	tx, err := p.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback() // After a Commit it does nothing.
	if err := f(sqlConn{nil, tx, p.usesPgx()}); err != nil {
		return err
	}
	return tx.Commit()
}

func (p sqlPool) canListen() bool { return p.usesPgx() }

func (p sqlPool) listenConfig(ctx context.Context) (*pgx.ConnConfig, error) {
	c, err := p.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close() // It goes back to the pool.
	var config *pgx.ConnConfig
	err = c.Raw(func(raw any) error {
		own, ok := raw.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("%w: the driver of database/sql is not pgx", driver.ErrUnsupported)
		}
		config = own.Conn().Config()
		return nil
	})
	return config, err
}

func (p sqlPool) close() { _ = p.Close() } // Open connections are of no use any more.

// An sqlConn is a connection or a transaction of package database/sql.
type sqlConn struct {
	conn    *sql.Conn // nil in a transaction
	queryer interface {
		QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	}
	usesPgx bool
}

func (c sqlConn) releaseConn() { _ = c.conn.Close() } // It goes back to the pool, or is closed if it is broken.

func (c sqlConn) rawConn() (*pgx.Conn, error) {
	var conn *pgx.Conn
	err := c.conn.Raw(func(raw any) error {
		if own, ok := raw.(*stdlib.Conn); ok {
			conn = own.Conn()
		}
		return nil
	})
	return conn, err
}

func (c sqlConn) query(ctx context.Context, unprepared bool, text string, args []any, row func(scanner) error) error {
	rows, err := c.queryer.QueryContext(ctx, text, withMode(unprepared && c.usesPgx, args)...)
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
