//go:build unix

package pgstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
)

// A caller who gives up while he waits for others has released nothing.
func TestCancelledReleaseIsNotSent(t *testing.T) {
	t.Parallel()
	s := open(t)
	a, b := grant(t, s, "a", time.Minute), grant(t, s, "b", time.Minute)
	disperse := crowd(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancelled, other := part(ctx, t, s, 0, a), part(t.Context(), t, s, 1, b)
	cancel()
	if e := await(t, cancelled); !driver.NotApplied(e.err) || !errors.Is(e.err, context.Canceled) {
		t.Errorf("Release cancelled before it was sent: %v, want an error that nothing was done", e.err)
	}
	disperse()
	if e := await(t, other); e.err != nil || !e.ended {
		t.Errorf("the other Release: %v, %v", e.ended, e.err)
	}
	refuse(t, s, "a")
}

// A caller who gives up while the batch is under way learns what became of it if
// the answer comes soon, and does not wait for one that hangs; nor does Close.
func TestCancelledReleaseUnderWay(t *testing.T) {
	t.Parallel()
	s, proxy := proxied(t, newSchema(t))
	for _, hangs := range []bool{false, true} {
		a := grant(t, s, "a", time.Minute)
		disperse := crowd(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		e := part(ctx, t, s, 0, a)
		proxy.Hold(faultproxy.Down)
		disperse()
		eventually(t, "batch", func() bool { return gathered(s) == 0 })
		cancel()
		if !hangs {
			proxy.Pass(faultproxy.Down)
		}
		switch got := await(t, e); {
		case !hangs && (got.err != nil || !got.ended):
			t.Errorf("Release cancelled under way: %v, %v, want its outcome", got.ended, got.err)
		case hangs && (got.err == nil || driver.NotApplied(got.err)):
			t.Errorf("Release that hangs: %v, want an error that leaves it open", got.err)
		}
	}
	closed := make(chan end, 1)
	go func() { closed <- end{err: s.Close()} }()
	await(t, closed)
}

// Releases that wait for others when the store is closed come to an end.
func TestCloseWhileReleasesGather(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := grant(t, s, "a", time.Minute)
	disperse := crowd(t, s)
	e := part(t.Context(), t, s, 0, a)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	disperse()
	if e := await(t, e); !errors.Is(e.err, driver.ErrClosed) {
		t.Errorf("Release at Close: %v, want ErrClosed", e.err)
	}
}
