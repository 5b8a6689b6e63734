package storetest

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/hookcheck"
)

// EventPairs checks that the events of random histories form pairs, and that no hold and no wait is
// open when the Clients are closed, at the end or in the middle. There are histories until each
// kind of event has come, and a Client was closed in the middle.
func EventPairs(t *testing.T, s *Store) {
	t.Helper()
	total := map[holdfast.EventKind]int{}
	missing := func() []holdfast.EventKind {
		return slices.DeleteFunc([]holdfast.EventKind{
			holdfast.EventWaiting, holdfast.EventAcquired, holdfast.EventJoined, holdfast.EventRefused, holdfast.EventFailed,
			holdfast.EventReleased, holdfast.EventLost, holdfast.EventRequest,
		}, func(kind holdfast.EventKind) bool { return total[kind] > 0 })
	}
	closedInTheMiddle := false
	for seed := uint64(0); seed < uint64(Rounds(t, 4)) || seed < 100 && (len(missing()) > 0 || !closedInTheMiddle); seed++ {
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
		ended := make(chan struct{}) // On a busy machine a history may end with few releases.
		if seed%4 == 3 {
			group.Go(func() {
				select {
				case <-middle:
					closedInTheMiddle = true
				case <-ended:
				}
				closeRegardless(h.Locks)
			})
		}
		h.Run(t.Context())
		close(ended)
		group.Wait()
		closeRegardless(h.Locks)
		closeRegardless(h.Other)
		for kind, n := range events.CheckClosed() {
			total[kind] += n
		}
	}
	if kinds := missing(); len(kinds) > 0 {
		t.Errorf("no event %v among %v", kinds, total)
	}
	if !closedInTheMiddle {
		t.Error("no Client was closed in the middle")
	}
}

// closeRegardless closes a Client. Locks that were broken or have expired are no failure here.
func closeRegardless(c *holdfast.Client) { _ = c.Close() }
