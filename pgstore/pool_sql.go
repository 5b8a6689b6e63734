package pgstore

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// sqlPool is a pool of package database/sql with the driver of pgx.
type sqlPool struct{ *sql.DB }

func (p sqlPool) acquireConn(ctx context.Context) (conn, error) {
	c, err := p.Conn(ctx)
	if err != nil {
		stats := p.Stats()
		return nil, noneFree(err, stats.InUse, stats.MaxOpenConnections)
	}
	var own *pgx.Conn
	if err := c.Raw(func(raw any) error {
		own = raw.(*stdlib.Conn).Conn()
		return nil
	}); err != nil {
		_ = c.Close()
		return nil, err
	}
	// Close gives it back to the pool, which tests at its next use whether it is broken.
	return pgxConn{own, own, func() { _ = c.Close() }}, nil
}

func (p sqlPool) listenConfig(ctx context.Context) (*pgx.ConnConfig, error) {
	c, err := p.acquireConn(ctx)
	if err != nil {
		return nil, err
	}
	defer c.releaseConn()
	return c.rawConn().Config(), nil
}

func (p sqlPool) close() { _ = p.Close() } // Open connections are of no use any more.
