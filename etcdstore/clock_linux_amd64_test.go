package etcdstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
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
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	var inside, token atomic.Int64
	turns := make(chan struct{})
	for _, c := range all {
		group.Go(func() {
			for ctx.Err() == nil {
				lock, err := c.Acquire(ctx, "turns", nil)
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d hold the lock", n)
				}
				if last := token.Swap(lock.Token()); lock.Token() <= last {
					t.Errorf("token %d after %d", lock.Token(), last)
				}
				select {
				case turns <- struct{}{}:
				case <-ctx.Done():
				}
				inside.Add(-1)
				if err := lock.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
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
			for range 5 {
				receive(t, turns)
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
