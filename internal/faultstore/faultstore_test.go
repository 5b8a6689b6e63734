package faultstore_test

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// A store without faults keeps the contract, also if it claims less than the one that it wraps.
func TestConformance(t *testing.T) {
	for name, limit := range map[string]func(*faultstore.Store) *faultstore.Store{
		"whole":  func(s *faultstore.Store) *faultstore.Store { return s },
		"unfair": (*faultstore.Store).Unfair,
		"silent": (*faultstore.Store).Silent,
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, drivertest.Harness{Virtual: true, New: func(tb testing.TB) drivertest.Backing {
				first := memstore.Named(tb.Name()) // keeps the space while the suite closes its stores
				tb.Cleanup(func() { first.Close() })
				return drivertest.Backing{Open: func(testing.TB) driver.Store {
					return strict{limit(faultstore.Wrap(memstore.Named(tb.Name())))}
				}}
			}})
		})
	}
}

// strict carries no request out whose context has ended, which a Store does. If it is not Fair it
// is of one process: its Ask notices are of what happens through it.
type strict struct{ *faultstore.Store }

func (s strict) Guarantees() driver.Guarantees {
	guarantees := s.Store.Guarantees()
	if !guarantees.Fair {
		guarantees.Scope = driver.ScopeProcess
	}
	return guarantees
}

func (s strict) Acquire(ctx context.Context, req driver.AcquireRequest) (res driver.AcquireResult, err error) {
	if ctx.Err() != nil {
		return res, driver.NotApplied(ctx.Err())
	}
	return s.Store.Acquire(ctx, req)
}

func (s strict) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.RenewOutcome, error) {
	if ctx.Err() != nil {
		return nil, driver.NotApplied(ctx.Err())
	}
	return s.Store.Renew(ctx, reqs)
}

func (s strict) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if ctx.Err() != nil {
		return false, driver.NotApplied(ctx.Err())
	}
	return s.Store.Release(ctx, req)
}
