package quorumstore

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// A backend is the side of a server that one client is connected to.
type backend struct {
	*server
	closed atomic.Bool
}

// call lets a request meet with the fault of the server, which may apply it
// even when it has answered already.
func call[T any](ctx context.Context, b *backend, op faultstore.Op, request func(*memstore.Store) (T, error)) (T, error) {
	var none, value T
	if b.closed.Load() {
		return none, driver.ErrClosed
	}
	fault := b.current()
	if fault == nil {
		return request(b.memory())
	}
	var mu sync.Mutex
	var result error
	answered := false
	err := fault(ctx, op, func() {
		v, err := request(b.memory())
		mu.Lock()
		defer mu.Unlock()
		if !answered {
			value, result = v, err
		}
	})
	mu.Lock()
	defer mu.Unlock()
	answered = true
	if err == nil {
		err = result
	}
	if err != nil {
		return none, err
	}
	return value, nil
}

// Acquire grants tokens by the server's clock.
func (b *backend) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	return call(ctx, b, faultstore.Acquire, func(store *memstore.Store) (driver.Result, error) {
		req.Floor = max(req.Floor, time.Now().Add(b.ahead).UnixMicro())
		return store.Acquire(ctx, req)
	})
}

func (b *backend) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	return call(ctx, b, faultstore.Renew, func(store *memstore.Store) ([]driver.Entry, error) {
		return store.Renew(ctx, reqs)
	})
}

func (b *backend) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	return call(ctx, b, faultstore.Release, func(store *memstore.Store) (bool, error) {
		return store.Release(ctx, req)
	})
}

func (b *backend) Lookup(ctx context.Context, name string) ([]driver.Record, error) {
	return call(ctx, b, faultstore.Lookup, func(store *memstore.Store) ([]driver.Record, error) {
		return store.Lookup(ctx, name)
	})
}

func (b *backend) Break(ctx context.Context, name string, token int64) ([]driver.Record, error) {
	return call(ctx, b, faultstore.Break, func(store *memstore.Store) ([]driver.Record, error) {
		return store.Break(ctx, name, token)
	})
}

func (b *backend) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	list, err := call(ctx, b, faultstore.Lookup, func(store *memstore.Store) (iter.Seq2[driver.Record, error], error) {
		return store.List(ctx, prefix), nil
	})
	if err != nil {
		return func(yield func(driver.Record, error) bool) { yield(driver.Record{}, err) }
	}
	return list
}

func (b *backend) Guarantees() driver.Guarantees { return memstore.New().Guarantees() }

func (b *backend) Close() error {
	b.closed.Store(true)
	return nil
}
