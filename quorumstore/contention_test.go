package quorumstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
)

// Contenders that have the nodes among them, 2 and 2 and 1, do not lock each
// other out: one of them wins, and soon.
func TestSplitVoteIsResolved(t *testing.T) {
	for range 50 {
		inBubble(t, 5, func(t *testing.T, c cluster) {
			near := [][]int{{0, 1}, {2, 3}, {4}}
			var granted atomic.Int32
			var group sync.WaitGroup
			began := time.Now()
			for _, mine := range near {
				conns := c.connect()
				for i, conn := range conns {
					delay := 10 * time.Millisecond
					if slices.Contains(mine, i) {
						delay = time.Millisecond
					}
					conn.Set(faultstore.Acquire, slow(delay, delay))
					conn.Set(faultstore.Release, slow(delay, delay))
				}
				client := holdfast.New(join(t, conns), nil)
				t.Cleanup(func() { _ = client.Close() })
				group.Go(func() {
					if _, err := client.TryAcquire(t.Context(), name, nil); err == nil {
						granted.Add(1)
					} else if !errors.Is(err, holdfast.ErrHeld) {
						t.Error(err)
					}
				})
			}
			group.Wait()
			if n := granted.Load(); n != 1 {
				t.Errorf("%d of three contenders were granted", n)
			}
			if d := time.Since(began); d > 3*time.Second {
				t.Errorf("it took %v", d)
			}
		})
	}
}

// An Acquire whose undoing has begun is Lost, whatever its nodes say while that is under way.
func TestUndoneIsLost(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		s := c.client(t)
		for i, server := range c { // All grant, and all under different tokens.
			server.ahead = time.Duration(i) * 3 * time.Second
			server.set(func(ctx context.Context, op faultstore.Op, apply func()) error {
				if op == faultstore.Release {
					time.Sleep(2 * DefaultTimeout)
				}
				apply()
				return nil
			})
		}
		req := request("mine")
		if res, err := s.Acquire(t.Context(), req); err == nil || driver.IsNotApplied(err) {
			t.Fatalf("%+v, %v", res, err)
		}
		c.holders(t, "mine", "mine", "mine")
		if got := renew(t, s, req); got != driver.Lost {
			t.Errorf("Renew is answered %v", got)
		}
	})
}

// A wait that ends in a crowd, on nodes that answer, ends with ErrHeld, however often the votes of
// the contenders have no winner.
func TestWaitInACrowdEndsWithHeld(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		for _, s := range c {
			s.set(jitter(2 * time.Millisecond))
		}
		var held, got atomic.Int64
		var group sync.WaitGroup
		for range 10 {
			client := holdfast.New(c.client(t), nil)
			group.Go(func() {
				defer client.Close()
				for held.Load() < 5000 {
					lock, err := client.Acquire(t.Context(), name, &holdfast.Options{Wait: 50*time.Millisecond + rand.N(200*time.Millisecond)})
					switch {
					case err == nil:
						got.Add(1)
						time.Sleep(rand.N(150 * time.Millisecond))
						if err := lock.Release(); err != nil {
							t.Error(err)
						}
					case errors.Is(err, holdfast.ErrHeld):
						held.Add(1)
					default:
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		if got.Load() < 500 {
			t.Errorf("%d waits ended with the lock", got.Load())
		}
	})
}
