//go:build unix

package pgstore

import (
	"context"
	"regexp"
	"testing"

	"github.com/holdfast-go/holdfast/pgstore/advisory"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// ServerVersion is "PostgreSQL" and a number, on both kinds of store.
func TestServerVersion(t *testing.T) {
	t.Parallel()
	locks := advisory.New(pgtest.OpenPool(t, pgtest.Postgres().URL("postgres")), nil)
	t.Cleanup(func() { _ = locks.Close() })
	for _, s := range []interface {
		ServerVersion(ctx context.Context) (string, error)
	}{open(t), locks} {
		got, err := s.ServerVersion(t.Context())
		if !regexp.MustCompile(`^PostgreSQL [1-9][0-9.]+`).MatchString(got) || err != nil {
			t.Errorf("%T: %q, %v", s, got, err)
		}
	}
}
