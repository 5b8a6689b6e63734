package lockview

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memstore"
)

// A listedStore lists fixed holds, and an error between.
type listedStore struct {
	driver.Store
	holds []driver.Record
}

func (s *listedStore) List(context.Context, string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		for i, hold := range s.holds {
			if i == 1 && !yield(driver.Record{}, driver.ErrCorrupt) || !yield(hold, nil) {
				return
			}
		}
	}
}

// The holds of one name are one lock, in their order but for a live one in front, and only the
// first shows how many wait.
func TestHoldsOfOneNameAreOneLock(t *testing.T) {
	client := holdfast.New(&listedStore{memstore.New(), []driver.Record{
		{Name: "b", Token: 1, Kept: true, Waiting: 3}, {Name: "b", Token: 2, Kept: true, Waiting: 3},
		{Name: "b", Token: 3, Waiting: 3}, {Name: "b", Token: 4, Waiting: 3}, {Name: "a", Token: 9},
	}}, nil)
	defer client.Close()
	locks, errs := List(t.Context(), client, "")
	want := []Lock{{{Name: "a", Token: 9}}, {
		{Name: "b", Token: 3, Waiting: 3}, {Name: "b", Token: 1, Kept: true}, {Name: "b", Token: 2, Kept: true}, {Name: "b", Token: 4},
	}}
	if !reflect.DeepEqual(locks, want) {
		t.Errorf("%v, want %v", locks, want)
	}
	if len(errs) != 1 || !errors.Is(errs[0], driver.ErrCorrupt) {
		t.Errorf("errors: %v", errs)
	}
}
