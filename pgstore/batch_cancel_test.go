//go:build unix

package pgstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
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
	disperse()
	if e := await(t, cancelled); !driver.IsNotApplied(e.err) || !errors.Is(e.err, context.Canceled) {
		t.Errorf("Release cancelled before it was sent: %v, want an error that nothing was done", e.err)
	}
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
		pgtest.Eventually(t, "batch", func() bool { return s.batches.Waiting() == 0 })
		cancel()
		if !hangs {
			proxy.Pass(faultproxy.Down)
		}
		switch got := await(t, e); {
		case !hangs && (got.err != nil || !got.ended):
			t.Errorf("Release cancelled under way: %v, %v, want its outcome", got.ended, got.err)
		case hangs && (got.err == nil || driver.IsNotApplied(got.err)):
			t.Errorf("Release that hangs: %v, want an error that leaves it open", got.err)
		}
	}
	closed := make(chan end, 1)
	go func() { closed <- end{err: s.Close()} }()
	await(t, closed)
}

// A caller with a deadline that passes while the batch is in flight waits for a reply that comes
// soon. Otherwise its release could overtake the acquisition.
func TestDeadlineOfAcquisitionInABatch(t *testing.T) {
	t.Parallel()
	s, proxy := proxied(t, newSchema(t))
	knownFree(t, s, "a")
	disperse := crowd(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	results := make(chan acquired, 1)
	go func() {
		res, err := s.Acquire(ctx, pgtest.Request("a", time.Minute))
		results <- acquired{res, err}
	}()
	pgtest.Eventually(t, "acquisition that waits for others", func() bool { return gathered(s) > 0 })
	proxy.Hold(faultproxy.Down)
	disperse()
	pgtest.Eventually(t, "batch", func() bool { return s.batches.Waiting() == 0 })
	<-ctx.Done()
	proxy.Pass(faultproxy.Down)
	if res := awaitAcquired(t, results); res.err != nil || !res.Granted {
		t.Errorf("Acquire with a reply after its deadline: %+v, want it granted", res)
	}
}

// Releases that wait in a batch when the store is closed return.
func TestCloseDuringReleaseBatch(t *testing.T) {
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
