package storetest_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/hookcheck"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// TestEventPairs: on every store, the events of random histories form pairs, and no hold and no wait
// is open when the Clients are closed, at the end or in the middle.
func TestEventPairs(t *testing.T) {
	storetest.EachOfAll(t, func(t *testing.T, s *storetest.Store) {
		total := map[holdfast.EventKind]int{}
		for seed := range uint64(storetest.Rounds(t, 4)) {
			var releases atomic.Int64
			middle := make(chan struct{})
			events := hookcheck.NewEvents(t)
			config := &holdfast.Config{Hooks: holdfast.JoinHooks(
				events.Hooks(),
				holdfast.OnEvent(holdfast.EventReleased, func(holdfast.Event) {
					if releases.Add(1) == 5 {
						close(middle)
					}
				}),
			)}
			if seed%2 == 1 {
				config.LocalTurn = -1
			}
			h := &hookcheck.History{Locks: s.Open(t, config), Other: s.Open(t, config), Seed: seed, Steps: 20}
			var group sync.WaitGroup
			if seed%4 == 3 {
				group.Go(func() {
					<-middle
					closeRegardless(h.Locks)
				})
			}
			h.Run(t.Context())
			group.Wait()
			closeRegardless(h.Locks)
			closeRegardless(h.Other)
			for kind, n := range events.CheckClosed() {
				total[kind] += n
			}
		}
		for _, kind := range []holdfast.EventKind{
			holdfast.EventWaiting, holdfast.EventAcquired, holdfast.EventJoined, holdfast.EventRefused, holdfast.EventFailed,
			holdfast.EventReleased, holdfast.EventLost, holdfast.EventRequest,
		} {
			if total[kind] == 0 {
				t.Errorf("no event %v among %v", kind, total)
			}
		}
	})
}

// closeRegardless closes a Client. Locks that were broken or have expired are no failure here.
func closeRegardless(c *holdfast.Client) { _ = c.Close() }
