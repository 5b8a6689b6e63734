package pgstore

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

var _ driver.Identifier = (*Store)(nil)

// Identity implements [driver.Identifier]. It returns the system identifier of the server and the
// time of its start, which all databases on it share. A store of package pgstore/advisory on the server has the same
// identity. Identity returns "" if the server has no such identifier, or does not let the user read
// it.
func (s *Store) Identity(ctx context.Context) (id string, err error) {
	err = s.queryRow(ctx, pgclient.IdentityQuery, nil, &id)
	return pgclient.Identity(id, err)
}
