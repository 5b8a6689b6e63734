package filestore

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
)

// gaps are what the store of the second edition does in another way.
var gaps = map[string]string{
	"exclusion/second-acquire": "a second Acquire of an owner is answered as the first",
	"concurrency/one-owner":    "a second Acquire of an owner is answered as the first",
	"limits/prefix":            "readers are not counted against the limits of others",
	"break/block":              "only the first token of a block is known",
	"break/told":               "Break sends no notice to the holder",
}

func TestConformance(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{Gaps: gaps, New: newBacking})
}

func newBacking(tb testing.TB) drivertest.Backing {
	dir := filepath.Join(tb.TempDir(), "holdfast")
	var reboots atomic.Int64
	open := func(tb testing.TB, skew time.Duration) driver.Store {
		h, err := thisHost()
		if err != nil {
			tb.Fatal(err)
		}
		h.boot += time.Duration(reboots.Load()).String()
		h.wall = func() time.Time { return time.Now().Add(skew) }
		s, err := openWithHost(h, dir, nil)
		if err != nil {
			tb.Fatal(err)
		}
		return &faultyStore{Store: newStore(s)}
	}
	return drivertest.Backing{
		Open:       func(tb testing.TB) driver.Store { return open(tb, 0) },
		OpenSkewed: open,
		Restart:    func(testing.TB) { reboots.Add(1) },
		Crash: func(tb testing.TB, s driver.Store) {
			if err := s.(*faultyStore).Session().Close(); err != nil {
				tb.Fatal(err)
			}
		},
		Fault: func(_ testing.TB, s driver.Store, f drivertest.Fault) {
			s.(*faultyStore).fault.Store(uint32(f))
		},
	}
}

// A faultyStore is a Store of which a request can be lost, or an answer.
type faultyStore struct {
	*Store
	fault atomic.Uint32
}

var errLost = errors.New("lost")

// request makes a request, or half of it.
func (s *faultyStore) request(do func() error) error {
	fault := drivertest.Fault(s.fault.Swap(0))
	if fault == drivertest.RequestLost {
		return errLost
	}
	if err := do(); err != nil || fault != drivertest.ReplyLost {
		return err
	}
	return errLost
}

func (s *faultyStore) Acquire(ctx context.Context, req driver.Request) (res driver.Result, err error) {
	err = s.request(func() (err error) {
		res, err = s.Store.Acquire(ctx, req)
		return err
	})
	if err != nil {
		return driver.Result{}, err
	}
	return res, nil
}

func (s *faultyStore) Renew(ctx context.Context, reqs []driver.RenewRequest) (entries []driver.Entry, err error) {
	err = s.request(func() (err error) {
		entries, err = s.Store.Renew(ctx, reqs)
		return err
	})
	if errors.Is(err, errLost) {
		return nil, err
	}
	return entries, err
}

func (s *faultyStore) Release(ctx context.Context, req driver.ReleaseRequest) (ended bool, err error) {
	err = s.request(func() (err error) {
		ended, err = s.Store.Release(ctx, req)
		return err
	})
	return ended && err == nil, err
}
