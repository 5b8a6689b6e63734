package quorumstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
)

func signals(watch <-chan struct{}) int {
	synctest.Wait()
	select {
	case <-watch:
		return 1
	default:
		return 0
	}
}

// A release wakes at once, whatever a minority does; what a failed attempt
// gives back on a minority does not.
func TestWatch(t *testing.T) {
	for what, fault := range map[string]func(*server) faultstore.Fault{
		"healthy": func(*server) faultstore.Fault { return nil },
		"dead":    dead,
		"hung":    hung,
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, 5, func(t *testing.T, c cluster) {
				for _, s := range c[:2] {
					s.set(fault(s))
				}
				s, other := c.client(t), c.client(t)
				for range 10 {
					req := request("other")
					grant(t, other, req)
					ctx, cancel := context.WithCancel(t.Context())
					watch, err := s.Watch(ctx, name)
					if err != nil {
						t.Fatal(err)
					}
					signals(watch)
					giveBack(t, other, req)
					if signals(watch) != 1 {
						t.Fatal("a release did not wake")
					}
					cancel()
					time.Sleep(2 * staleSignal)
				}
			})
		})
	}
}

func TestWatchIgnoresAMinority(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		s, third := c.client(t), c.connect()[2]
		watch, err := s.Watch(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(2 * staleSignal)
		for range 20 {
			req := request("alone")
			if _, err := third.Acquire(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			if _, err := third.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: req.Owner}); err != nil {
				t.Fatal(err)
			}
			if signals(watch) > 0 {
				t.Fatal("the release of an attempt that failed wakes")
			}
		}
	})
}

// A node that joins a watch later may have missed a release that the others
// have signaled, or are about to.
func TestWatchJoinedLate(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		conns := c.connect()
		for i, conn := range conns {
			conn.Set(faultstore.Watch, slow(time.Duration(i)*10*time.Millisecond, 0))
		}
		s, other := join(t, conns), c.client(t)
		req := request("other")
		grant(t, other, req)
		watch, err := s.Watch(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		// The release reaches node 3 before it watches, and node 1 after.
		slowly := join(t, func() []*conn {
			conns := c.connect()
			conns[0].Set(faultstore.Release, slow(20*time.Millisecond, 0))
			conns[1].Set(faultstore.Release, faultstore.Refuse)
			return conns
		}())
		giveBackAnyway(t, slowly, req)
		time.Sleep(50 * time.Millisecond)
		if signals(watch) != 1 {
			t.Error("a release did not wake")
		}
	})
}

func giveBackAnyway(t *testing.T, s *Store, req driver.AcquireRequest) {
	t.Helper()
	if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner}); err != nil {
		t.Fatal(err)
	}
}

// A node that does not begin to watch in time is given up, though its watch would last as long as
// that of the caller. The others go on.
func TestWatchAtAHungNode(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		conns := c.connect()
		conns[2].Set(faultstore.Watch, faultstore.Hang)
		s, other := join(t, conns), c.client(t)
		req := request("other")
		grant(t, other, req)
		watch, err := s.Watch(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2*DefaultTimeout - 1)
		synctest.Wait()
		if n := s.nodes[2].pending.Load(); n != 1 {
			t.Errorf("%d requests before the deadline, want the watch", n)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if n := s.nodes[2].pending.Load(); n != 0 {
			t.Errorf("%d requests of a watch are left at its deadline", n)
		}
		giveBack(t, other, req)
		if signals(watch) != 1 {
			t.Error("a release did not wake")
		}
	})
}

// A watch that a node begins after the request for it has ended is not kept.
func TestWatchBegunTooLate(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		conns := c.connect()
		begun := make(chan context.Context, 1)
		conns[2].Set(faultstore.Watch, func(ctx context.Context, _ faultstore.Op, apply func()) error {
			time.Sleep(3 * DefaultTimeout)
			apply()
			begun <- ctx
			return nil
		})
		s := join(t, conns)
		if _, err := s.Watch(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		ctx := <-begun
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("the watch at the node goes on")
		}
	})
}

// Without a majority that wakes there is no watch, and none is claimed.
func TestNoWatch(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		conns := c.connect()
		for _, conn := range conns[:2] {
			conn.NoPush()
		}
		s := join(t, conns)
		if s.Guarantees().Push {
			t.Error("Push is claimed")
		}
		if _, err := s.Watch(t.Context(), name); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("Watch: %v", err)
		}
	})
}
