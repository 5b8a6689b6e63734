package quorumstore

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// What only a minority has is no hold; what may have a majority is unclear.
func TestLookupAndList(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		s := c.client(t)
		if _, err := c.connect()[0].Acquire(t.Context(), request("alone")); err != nil {
			t.Fatal(err)
		}
		if records, err := s.Lookup(t.Context(), name); err != nil || len(records) > 0 {
			t.Errorf("a minority: %+v, %v", records, err)
		}
		for rec, err := range s.List(t.Context(), "") {
			t.Errorf("a minority is listed: %+v, %v", rec, err)
		}
		c[2].set(faultstore.Refuse)
		var votes *majorityError
		if _, err := s.Lookup(t.Context(), name); !errors.As(err, &votes) || !strings.Contains(err.Error(), `node 1 (test): ["invoices/42" held by "alone"`) {
			t.Errorf("what may be a majority: %v", err)
		}
		yielded := 0
		for rec, err := range s.List(t.Context(), "") {
			yielded++
			if err == nil || rec.Name != "" || !strings.Contains(err.Error(), name) {
				t.Errorf("what may be a majority is listed: %+v, %v", rec, err)
			}
		}
		if yielded != 1 {
			t.Errorf("%d entries", yielded)
		}
		c[1].set(faultstore.Refuse)
		for rec, err := range s.List(t.Context(), "") {
			if !errors.As(err, &votes) {
				t.Errorf("a list without a majority: %+v, %v", rec, err)
			}
		}
	})
}

// A Timeout may be of any length.
func TestGreatestTimeout(t *testing.T) {
	s := New([]driver.Store{memstore.New(), memstore.New(), memstore.New()}, &Options{Timeout: math.MaxInt64, CloseStores: true})
	defer s.Close()
	if res, err := s.Acquire(t.Context(), request("owner")); err != nil || !res.Granted {
		t.Errorf("Acquire: %+v, %v", res, err)
	}
}
