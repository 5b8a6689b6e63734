package pgstore

import (
	"context"

	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// ServerVersion returns the name and version of the server, as in "PostgreSQL 15.18".
func (s *Store) ServerVersion(ctx context.Context) (string, error) {
	var number string
	if err := s.queryRow(ctx, pgclient.VersionQuery, nil, &number); err != nil {
		return "", err
	}
	return "PostgreSQL " + number, nil
}
