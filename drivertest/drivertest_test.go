package drivertest

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// The correct store passes, whatever it claims, in virtual time and in real.
func TestCorrectStore(t *testing.T) {
	for name, claims := range map[string]driver.Guarantees{
		"everything":       everything,
		"nothing":          nothing,
		"restart frees":    restartFrees,
		"crash frees":      crashFrees,
		"without fencing":  without(fencing),
		"without fair":     without(fair),
		"without lookup":   without(lookup),
		"without list":     without(list),
		"without break":    without(breaking),
		"without metadata": without(metadata),
		"without keep":     without(keep),
		"without detached": without(detached),
		"one process":      without(processes),
		"coarse":           coarse,
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, Harness{Virtual: true, New: func(testing.TB) Backing { return newModel(claims, "").backing() }})
		})
	}
}

// A store that cannot notify passes, too.
func TestStoreWithoutNotices(t *testing.T) {
	Run(t, Harness{Virtual: true, New: func(testing.TB) Backing { return newModel(without(fair), "cannot notify").backing() }})
}

func TestRealTime(t *testing.T) {
	Run(t, Harness{New: func(testing.TB) Backing { return newModel(everything, "").backing() }})
}

// A lateStore returns an error for the first grant of a short TTL, which came too late, and leaves
// the hold behind.
type lateStore struct {
	driver.Store
	late bool
}

func (s *lateStore) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	res, err := s.Store.Acquire(ctx, req)
	if s.late || !res.Granted || req.TTL >= medium {
		return res, err
	}
	s.late = true
	return driver.AcquireResult{}, errors.New("granted too late to be relied on")
}

// On a busy machine a store may have to take back a grant with a short TTL.
func TestLateGrant(t *testing.T) {
	for _, c := range expiryCases {
		if c.name != "not-early" && c.name != "not-late" && c.name != "each-its-own" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newModel(everything, "")
			open := func(testing.TB) driver.Store { return &lateStore{Store: m.open(0)} }
			c.execute(t, Harness{New: func(testing.TB) Backing { return Backing{Open: open} }}, 0)
		})
	}
}
