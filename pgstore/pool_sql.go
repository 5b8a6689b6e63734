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

// isPgx reports whether the driver is pgx's.
func (p sqlPool) isPgx() bool {
	_, ok := p.Driver().(*stdlib.Driver)
	return ok
}

func (p sqlPool) take(ctx context.Context) (conn, error) {
	c, err := p.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return sqlConn{c, sqlStatements{c, p.isPgx()}}, nil
}

func (p sqlPool) transact(ctx context.Context, f func(statements) error) error {
	tx, err := p.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback() // After a Commit it does nothing.
	if err := f(sqlStatements{tx, p.isPgx()}); err != nil {
		return err
	}
	return tx.Commit()
}

func (p sqlPool) canListen() bool { return p.isPgx() }

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

func (p sqlPool) close() { _ = p.Close() } // What was open is of no use any more.

type sqlConn struct {
	conn *sql.Conn
	sqlStatements
}

func (c sqlConn) free() { _ = c.conn.Close() } // It goes back to the pool, or is thrown away if it is broken.

// sqlStatements runs statements of database/sql on a connection or in a
// transaction.
type sqlStatements struct {
	on interface {
		QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	}
	isPgx bool
}

func (q sqlStatements) query(ctx context.Context, plain bool, text string, args []any, row func(scanner) error) error {
	rows, err := q.on.QueryContext(ctx, text, withMode(plain && q.isPgx, args)...)
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
