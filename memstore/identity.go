package memstore

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

var _ driver.Identifier = (*Store)(nil)

// Identity implements [driver.Identifier]. Stores of the same name have the same
// identity.
func (s *Store) Identity(ctx context.Context) (string, error) {
	if err := s.checkUsable(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("%p", s.table), nil
}
