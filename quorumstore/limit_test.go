package quorumstore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/faultstore"
)

// A request has the values of its caller's context, not its end, and a deadline
// of our own.
func TestLimit(t *testing.T) {
	type key struct{}
	inBubble(t, 3, func(t *testing.T, c cluster) {
		conns := c.connect()
		seen := make(chan context.Context, 1)
		conns[0].Set(faultstore.Acquire, func(ctx context.Context, _ faultstore.Op, apply func()) error {
			apply()
			seen <- ctx
			return nil
		})
		s := join(t, conns)
		for wait := range 2 * time.Duration(limitShare) {
			time.Sleep(wait * DefaultTimeout / limitShare / 8)
			caller, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, wait))
			req := request("mine")
			grant(t, s, req)
			<-seen
			if res, err := s.Acquire(caller, req); err != nil || !res.Granted {
				t.Fatalf("%+v, %v", res, err)
			}
			ctx := <-seen
			cancel()
			deadline, _ := ctx.Deadline()
			if left := time.Until(deadline); left > 2*DefaultTimeout || left < 2*DefaultTimeout-DefaultTimeout/limitShare {
				t.Errorf("a request has %v", left)
			}
			if ctx.Value(key{}) != wait || ctx.Err() != nil {
				t.Errorf("value %v, %v", ctx.Value(key{}), ctx.Err())
			}
			child, stop := context.WithCancel(ctx) // finds its parent without a goroutine
			time.Sleep(2 * DefaultTimeout)
			synctest.Wait()
			if child.Err() != context.DeadlineExceeded {
				t.Errorf("%v at the deadline", child.Err())
			}
			stop()
			giveBack(t, s, req)
		}
	})
}

// The caller of a majority that hangs waits for the Timeout, or a little less.
func TestCallersLimit(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		c[0].set(c[0].hang)
		c[1].set(c[1].hang)
		s := c.client(t)
		for range 2 * limitShare {
			d := took(func() { _, _, _ = s.Lookup(t.Context(), name) })
			if d > DefaultTimeout || d < DefaultTimeout-DefaultTimeout/limitShare {
				t.Errorf("Lookup took %v", d)
			}
			time.Sleep(DefaultTimeout / limitShare / 4)
		}
	})
}
