package quorumstore

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/faultstore"
)

func dead(*server) faultstore.Fault   { return faultstore.Refuse }
func hung(s *server) faultstore.Fault { return s.hang }
func lagging(*server) faultstore.Fault {
	return slow(10*time.Millisecond, 10*time.Millisecond) // Contenders are to be through in 200 ms.
}

// A quorum is a correct store, whatever becomes of a minority of its nodes.
func TestConformance(t *testing.T) {
	for name, minority := range map[string][]func(*server) faultstore.Fault{
		"of one":                      nil,
		"of three":                    nil,
		"of four":                     nil,
		"of five":                     nil,
		"of three, one dead":          {dead},
		"of three, one hung":          {hung},
		"of three, one slow":          {lagging},
		"of five, one dead, one hung": {dead, hung},
		"of five, one slow, one hung": {lagging, hung},
		"of five, clocks ahead":       nil,
	} {
		size := map[string]int{"of o": 1, "of t": 3, "of f": 5}[name[:4]]
		if name == "of four" {
			size = 4
		}
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, drivertest.Harness{Virtual: true, New: func(tb testing.TB) drivertest.Backing {
				c := newCluster(tb, size)
				for i, fault := range minority {
					c[i].set(fault(c[i]))
				}
				if name == "of five, clocks ahead" {
					for i, s := range c {
						s.ahead = time.Duration(i) * 2 * time.Second
					}
				}
				return c.backing(len(minority) == 0)
			}})
		})
	}
}

// backing makes the place for a conformance test. The faults of the suite meet
// one node, which must not be noticed.
func (c cluster) backing(whole bool) drivertest.Backing {
	conns := map[driver.Store]*conn{}
	b := drivertest.Backing{
		Open: func(tb testing.TB) driver.Store {
			all := c.connect()
			s := New(stores(all), &Options{CloseStores: true})
			conns[s] = all[len(all)-1]
			if c[len(c)-1].ahead > 0 { // It learns how far the clocks are apart.
				for range 20 {
					if _, err := s.Acquire(tb.Context(), request("first")); err == nil {
						break
					}
				}
				_, _ = s.Break(tb.Context(), name, 0) // A minority that hangs leaves it open.
			}
			return s
		},
		Crash: func(testing.TB, driver.Store) {},
	}
	if !whole {
		return b
	}
	b.Fault = func(tb testing.TB, s driver.Store, f drivertest.Fault) {
		fault := faultstore.Fault(faultstore.LoseReply)
		if f == drivertest.RequestLost {
			fault = faultstore.Refuse
		}
		var next sync.Once
		for _, op := range everyOp {
			conns[s].Set(op, func(ctx context.Context, op faultstore.Op, apply func()) (err error) {
				hit := false
				next.Do(func() { hit = true })
				if hit {
					return fault(ctx, op, apply)
				}
				apply()
				return nil
			})
		}
	}
	b.Busy = func(_ testing.TB, _ driver.Store, d time.Duration) {
		for i, s := range c { // the last for half of the time
			until := time.Now().Add(d)
			if i > 0 && i == len(c)-1 {
				until = time.Now().Add(d / 2)
			}
			s.set(func(_ context.Context, op faultstore.Op, apply func()) error {
				if left := time.Until(until); left > 0 && op != faultstore.Renew {
					return &driver.RetryError{Err: errors.New("it is loading"), After: left}
				}
				apply()
				return nil
			})
		}
	}
	if len(c) > 1 {
		b.Restart = func(testing.TB) { c[0].restart() }
	}
	return b
}
