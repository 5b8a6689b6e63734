package lockview

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memstore"
)

// A failingStore lists nothing but an error, and fails to look up some names.
type failingStore struct {
	driver.Store
	failing map[string]error
	lookups []string
}

func (p *failingStore) List(context.Context, string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		yield(driver.Record{}, fmt.Errorf("%w: somewhere", driver.ErrCorrupt))
	}
}

func (p *failingStore) Lookup(ctx context.Context, name string) ([]driver.Record, error) {
	p.lookups = append(p.lookups, name)
	if err := p.failing[name]; err != nil {
		return nil, err
	}
	return p.Store.Lookup(ctx, name)
}

// A lock that is missing from a listing with errors is not taken to be free.
func TestSnapshotMistrustsListingWithErrors(t *testing.T) {
	ctx := context.Background()
	for name, test := range map[string]struct {
		failing map[string]error
		want    string
		asked   int
	}{
		"damaged":     {map[string]error{"a": driver.ErrCorrupt}, "a c", 3},
		"unreachable": {map[string]error{"a": errors.New("broken wire")}, "a b c", 1},
	} {
		store := &failingStore{Store: memstore.New(), failing: test.failing}
		client := holdfast.New(store, nil)
		if _, err := client.TryAcquire(ctx, "c", nil); err != nil {
			t.Fatal(err)
		}
		last := &Snapshot{Locks: []Lock{{{Name: "a"}}, {{Name: "b"}}, {{Name: "c"}}}}
		p := Take(ctx, client, "", last)
		var got []string
		for _, lock := range p.Locks {
			got = append(got, lock.Name())
		}
		if text := strings.Join(got, " "); text != test.want || len(p.Errs) != 1 {
			t.Errorf("%s: %s, %v", name, text, p.Errs)
		}
		if len(store.lookups) != test.asked {
			t.Errorf("%s: asked for %q", name, store.lookups)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
}

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
