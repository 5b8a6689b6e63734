package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A pool is where connections come from.
type pool interface {
	// take waits for a connection.
	take(ctx context.Context) (conn, error)

	// transact runs f in a transaction of its own, READ COMMITTED.
	transact(ctx context.Context, f func(statements) error) error

	// canListen reports whether listenConfig works.
	canListen() bool

	// listenConfig says how to make a connection that is not of the pool.
	listenConfig(ctx context.Context) (*pgx.ConnConfig, error)

	close()
}

// statements runs them.
type statements interface {
	// query runs a statement and calls row for each row of its result; row
	// reads it by calling scan. A plain statement is not prepared.
	query(ctx context.Context, plain bool, text string, args []any, row func(scan scanner) error) error
}

// A scanner reads the columns of a row.
type scanner func(columns ...any) error

// A conn is a connection that has been taken from a pool.
type conn interface {
	statements
	free()
}

// pgxPool is a pool of pgx.
type pgxPool struct{ *pgxpool.Pool }

func (p pgxPool) take(ctx context.Context) (conn, error) {
	c, err := p.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return pgxConn{c, pgxStatements{c}}, nil
}

func (p pgxPool) transact(ctx context.Context, f func(statements) error) error {
	return pgx.BeginTxFunc(ctx, p.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		return f(pgxStatements{tx})
	})
}

func (p pgxPool) canListen() bool { return true }

func (p pgxPool) listenConfig(ctx context.Context) (*pgx.ConnConfig, error) {
	config := p.Config()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, err
		}
	}
	return config.ConnConfig, nil
}

func (p pgxPool) close() { p.Close() }

type pgxConn struct {
	conn *pgxpool.Conn
	pgxStatements
}

func (c pgxConn) free() { c.conn.Release() }

// pgxStatements runs statements of pgx on a connection or in a transaction.
type pgxStatements struct {
	on interface {
		Query(ctx context.Context, text string, args ...any) (pgx.Rows, error)
	}
}

func (q pgxStatements) query(ctx context.Context, plain bool, text string, args []any, row func(scanner) error) error {
	rows, err := q.on.Query(ctx, text, withMode(plain, args)...)
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

// withMode has pgx send a plain statement without preparing it; else the pool
// says how.
func withMode(plain bool, args []any) []any {
	if !plain {
		return args
	}
	return append([]any{pgx.QueryExecModeExec}, args...)
}
