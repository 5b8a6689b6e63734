package filestore

import (
	"path/filepath"
	"sync"
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
	var opened []*Store
	boots := time.Duration(0)
	crash := func(_ testing.TB, s driver.Store) { s.(*Store).die() }
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
		opened = append(opened, s)
		return s
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
	}
}
