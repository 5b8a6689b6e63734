package filestore

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/lockqueue/queuetest"
)

func TestConformance(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{New: newBacking})
}

// The store keeps the rule of the queue. No place looks by itself.
func TestHistories(t *testing.T) {
	queuetest.Run(t, nil, 100*time.Millisecond, func(tb testing.TB) driver.Notifier {
		s := openTest(tb, tb.TempDir())
		s.lookStep = time.Hour
		return s
	})
}

func newBacking(tb testing.TB) drivertest.Backing {
	dir := filepath.Join(tb.TempDir(), "holdfast")
	var mu sync.Mutex
	var opened []*faultyStore
	boots := time.Duration(0)
	crash := func(_ testing.TB, s driver.Store) { s.(*faultyStore).die() }
	open := func(tb testing.TB, skew time.Duration) driver.Store {
		h, err := thisHost()
		if err != nil {
			tb.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if boots > 0 { // Each boot began a minute before the one before it, so that they differ.
			began := h.uptime() - boots*time.Minute
			uptime := h.uptime
			h.uptime = func() time.Duration { return uptime() - began }
			h.boot += boots.String()
		}
		h.wall = func() time.Time { return time.Now().Add(skew) }
		s, err := openWithHost(h, dir, nil)
		if err != nil {
			tb.Fatal(err)
		}
		opened = append(opened, &faultyStore{Store: s})
		return opened[len(opened)-1]
	}
	return drivertest.Backing{
		Open:       func(tb testing.TB) driver.Store { return open(tb, 0) },
		OpenSkewed: open,
		Restart: func(tb testing.TB) {
			mu.Lock()
			defer mu.Unlock()
			for _, s := range opened {
				crash(tb, s)
			}
			opened, boots = nil, boots+1
		},
		Crash: crash,
		Fault: func(_ testing.TB, s driver.Store, f drivertest.Fault) {
			s.(*faultyStore).fault.Store(uint32(f))
		},
	}
}

// A faultyStore is a Store that can lose a request or its answer.
type faultyStore struct {
	*Store
	fault atomic.Uint32
}

var errLost = errors.New("lost")

// request makes a request, or loses it or its answer.
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
