package etcdstore

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// The clocks of the members step by an hour or two, each way. No hold is lost or doubled, tokens
// rise, and the hold of a client that has died ends when its time is over; but a server of 3.4 ends
// one that has begun before a step back as late as the step is wide, and only a Break ends it
// before.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	cluster := servers.StartEtcdCluster(t, 3)
	var all []*holdfast.Client
	for range 3 {
		c := holdfast.New(open(t, cluster...), nil)
		t.Cleanup(func() { must(t, c.Close()) })
		all = append(all, c)
	}
	kept, err := all[0].Acquire(t.Context(), "kept", &holdfast.Options{TTL: 10 * time.Second})
	must(t, err)
	last := int64(0)
	before := time.Duration(0)
	for _, offset := range []time.Duration{time.Hour, -time.Hour, time.Hour, 0} {
		die := func() {
			_, err := all[0].Acquire(t.Context(), "dead", &holdfast.Options{TTL: time.Second, NoRenew: true})
			must(t, err)
		}
		if offset > before {
			die()
		}
		for _, m := range cluster {
			servers.SetWallClock(t, m.PID(), offset)
			for _, c := range all {
				lock, err := c.Acquire(t.Context(), "turns", nil)
				must(t, err)
				if lock.Token() <= last {
					t.Errorf("token %d after %d", lock.Token(), last)
				}
				last = lock.Token()
				must(t, lock.Release())
			}
		}
		if offset < before {
			die()
		}
		before = offset
		next, err := all[1].Acquire(t.Context(), "dead", &holdfast.Options{Wait: time.Minute})
		must(t, err)
		must(t, next.Release())
		if _, err := all[1].TryAcquire(t.Context(), "kept", nil); !errors.Is(err, holdfast.ErrHeld) || kept.Err() != nil {
			t.Errorf("after a step of %v: %v, %v; want the lock held", offset, err, kept.Err())
		}
	}
	must(t, kept.Release())
}
