package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memstore"
)

// A patchy store lists nothing but an error, and fails to look up some names.
type patchy struct {
	driver.Store
	failing map[string]error
	asked   []string
}

func (p *patchy) List(context.Context, string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		yield(driver.Record{}, fmt.Errorf("%w: somewhere", driver.ErrCorrupt))
	}
}

func (p *patchy) Lookup(ctx context.Context, name string) (driver.Record, bool, error) {
	p.asked = append(p.asked, name)
	if err := p.failing[name]; err != nil {
		return driver.Record{}, false, err
	}
	return p.Store.Lookup(ctx, name)
}

// A lock that is missing from a listing with errors is not taken to be free.
func TestLookMistrustsListingWithErrors(t *testing.T) {
	ctx := context.Background()
	for name, test := range map[string]struct {
		failing map[string]error
		want    string
		asked   int
	}{
		"damaged":     {map[string]error{"a": driver.ErrCorrupt}, "a c", 3},
		"unreachable": {map[string]error{"a": errors.New("broken wire")}, "a b c", 1},
	} {
		store := &patchy{Store: memstore.New(), failing: test.failing}
		client := holdfast.New(store, nil)
		hold(t, client, "c")
		last := &picture{locks: []holdfast.Record{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
		w := &watchCommand{}
		p := w.look(ctx, client, last)
		var got []string
		for _, rec := range p.locks {
			got = append(got, rec.Name)
		}
		if text := strings.Join(got, " "); text != test.want || len(p.errs) != 1 {
			t.Errorf("%s: %s, %v", name, text, p.errs)
		}
		if len(store.asked) != test.asked {
			t.Errorf("%s: asked for %q", name, store.asked)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
}
