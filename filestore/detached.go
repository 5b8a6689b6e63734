package filestore

import (
	"context"
	"iter"

	"github.com/holdfast-go/holdfast/driver"
)

// A direct is a Store that makes each request on the caller's goroutine, which waits for the disk
// for as long as that hangs. The methods of Store return when their context ends.
type direct struct{ *Store }

// Acquire implements [driver.Store].
func (s *Store) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	return s.detached.Acquire(ctx, req)
}

// Renew implements [driver.Store].
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.RenewOutcome, error) {
	return s.detached.Renew(ctx, reqs)
}

// Release implements [driver.Store].
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	return s.detached.Release(ctx, req)
}

// Lookup implements [driver.Store].
func (s *Store) Lookup(ctx context.Context, name string) (driver.Record, bool, error) {
	return s.detached.Lookup(ctx, name)
}

// List implements [driver.Store].
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return s.detached.List(ctx, prefix)
}

// Break implements [driver.Store]. See [driver.Store.Break].
func (s *Store) Break(ctx context.Context, req driver.BreakRequest) (driver.Record, bool, error) {
	return s.detached.Break(ctx, req)
}
