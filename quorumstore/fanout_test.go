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

// A request has the values of its caller's context, not its end, and a deadline
// of our own.
func TestRequestContext(t *testing.T) {
	type key struct{}
	inBubble(t, 3, func(t *testing.T, c cluster) {
		conns := c.connect()
		seen := make(chan context.Context, 1)
		conns[0].Set(faultstore.Acquire, func(ctx context.Context, _ faultstore.Op, apply func()) error {
			apply()
			seen <- ctx
			deadline, _ := ctx.Deadline()
			if left := time.Until(deadline); left != 2*DefaultTimeout {
				t.Errorf("a request has %v", left)
			}
			child, stop := context.WithCancel(ctx) // finds its parent without a goroutine
			defer stop()
			<-child.Done()
			if child.Err() != context.DeadlineExceeded {
				t.Errorf("%v at the deadline", child.Err())
			}
			return child.Err()
		})
		s := join(t, conns)
		for i := range 3 {
			caller, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, i))
			req := request("mine")
			if res, err := s.Acquire(caller, req); err != nil || !res.Granted {
				t.Fatalf("%+v, %v", res, err)
			}
			cancel()
			ctx := <-seen
			synctest.Wait()
			if ctx.Value(key{}) != i || ctx.Err() != nil {
				t.Errorf("value %v, %v", ctx.Value(key{}), ctx.Err())
			}
			time.Sleep(3 * DefaultTimeout)
			giveBack(t, s, req)
			synctest.Wait() // for the release at the last node, which would split the next votes
		}
	})
}

// The caller of a majority that hangs waits for the Timeout; to the deadline of its context, if
// that is sooner; and no longer than until Close begins.
func TestCallerTimeout(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		c[0].set(c[0].hang)
		c[1].set(c[1].hang)
		s := c.client(t)
		for _, call := range []struct {
			deadline, takes time.Duration
			want            error
		}{
			{24 * time.Hour, DefaultTimeout, nil},
			{DefaultTimeout / 4, DefaultTimeout / 4, context.DeadlineExceeded},
			{DefaultTimeout + 1, DefaultTimeout, nil},
		} {
			var err error
			d := took(func() { _, _, err = s.Lookup(bounded(t, call.deadline), name) })
			if d != call.takes || err == nil || call.want != nil && !errors.Is(err, call.want) {
				t.Errorf("Lookup took %v, want %v: %v", d, call.takes, err)
			}
		}
		began := time.Now()
		time.AfterFunc(DefaultTimeout/2, func() { s.Close() })
		_, _, err := s.Lookup(t.Context(), name)
		if d := time.Since(began); d != DefaultTimeout/2 || !errors.Is(err, driver.ErrClosed) {
			t.Errorf("Lookup and Close took %v: %v", d, err)
		}
	})
}
