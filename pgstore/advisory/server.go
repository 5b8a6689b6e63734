package advisory

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// Identity implements [driver.Identifier], as that of [Store] does.
func (s *Store) Identity(ctx context.Context) (id string, err error) {
	if err := s.checkUsable(ctx); err != nil {
		return "", err
	}
	err = s.pool.QueryRow(ctx, pgclient.IdentityQuery, pgx.QueryExecModeSimpleProtocol).Scan(&id)
	return pgclient.Identity(id, s.wrapErr(err))
}

// ServerVersion returns the name and version of the server, as in "PostgreSQL 15.18".
func (s *Store) ServerVersion(ctx context.Context) (string, error) {
	if err := s.checkUsable(ctx); err != nil {
		return "", err
	}
	var number string
	if err := s.pool.QueryRow(ctx, pgclient.VersionQuery).Scan(&number); err != nil {
		return "", fmt.Errorf("read the version of the server: %w", err)
	}
	return "PostgreSQL " + number, nil
}
