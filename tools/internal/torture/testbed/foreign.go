//go:build unix

package testbed

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/tools/internal/torture"
)

// OpenForeign opens the store of a Testbed for a client of another kind: one of the SQL functions
// of a PostgreSQL table. It returns nil for any other store.
func OpenForeign(urls []string) (torture.ForeignClient, error) {
	if !strings.HasPrefix(urls[0], "postgres:") {
		return nil, nil
	}
	pool, err := pgxpool.New(context.Background(), urls[0])
	return foreignSQL{pool}, err
}

// foreignSQL takes locks by the SQL functions.
type foreignSQL struct{ pool *pgxpool.Pool }

func (c foreignSQL) Take(ctx context.Context, name, owner string, ttl time.Duration) (int64, bool, error) {
	var token *int64
	err := c.pool.QueryRow(ctx, "SELECT acquire_lock_token($1::text, $2::text, $3::double precision)", name, owner, ttl.Seconds()).Scan(&token)
	if err != nil || token == nil {
		return 0, false, err
	}
	return *token, true, nil
}

func (c foreignSQL) Free(ctx context.Context, name, owner string) (freed bool, err error) {
	err = c.pool.QueryRow(ctx, "SELECT release_lock($1::text, $2::text)", name, owner).Scan(&freed)
	return freed, err
}

func (c foreignSQL) Close() { c.pool.Close() }
