//go:build unix

package pgstore

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

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
