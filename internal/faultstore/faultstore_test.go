package faultstore_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// A store without faults keeps the contract, also if it claims less than the one that it wraps.
func TestConformance(t *testing.T) {
	for name, limit := range map[string]func(*faultstore.Store) driver.Store{
		"whole":  func(s *faultstore.Store) driver.Store { return s },
		"unfair": func(s *faultstore.Store) driver.Store { return s.Unfair() },
		"silent": func(s *faultstore.Store) driver.Store { return struct{ driver.Store }{s.Silent()} }, // no Notifier
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, drivertest.Harness{Virtual: true, New: func(tb testing.TB) drivertest.Backing {
				first := memstore.Named(tb.Name()) // keeps the space while the suite closes its stores
				tb.Cleanup(func() { first.Close() })
				return drivertest.Backing{Open: func(testing.TB) driver.Store {
					return limit(faultstore.Wrap(memstore.Named(tb.Name())))
				}}
			}})
		})
	}
}
