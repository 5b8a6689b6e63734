//go:build unix

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// A holder that is cut off knows that its lock is lost before anybody else can have it, in whatever
// way it is cut off, and wherever in its cycle of renewals the cut falls. The deadline is exact.
// The context depends on a timer, which a busy machine may run late: there the short run looks at
// the middle of all cuts.
func TestPartitionedHolder(t *testing.T) {
	t.Parallel()
	for what, ways := range map[string][]faultproxy.Direction{
		"everything is lost": {faultproxy.Up, faultproxy.Down},
		"requests are lost":  {faultproxy.Up},
		"replies are lost":   {faultproxy.Down},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := servers.StartRedis(t)
			cuts := rounds(t, 6)
			margins := make(chan time.Duration, cuts)
			for range cuts {
				go func() {
					margin, err := cutOff(t, server, ways)
					if err != nil {
						t.Error(err)
					}
					margins <- margin
				}()
			}
			var all []time.Duration
			for range cuts {
				all = append(all, <-margins)
			}
			slices.Sort(all)
			judged := all[len(all)/2]
			if os.Getenv("TEST_ROUNDS") != "" {
				judged = all[0]
			}
			if t.Logf("the context of a holder ended %v before the grant to another client", all); judged <= 0 {
				t.Errorf("the context of a holder ended %v after the grant to another client", -judged)
			}
		})
	}
}

// cutOff cuts a holder off at a random moment, has another client take the lock as soon as it can,
// and mends the network. It returns how long before the grant the context of the holder has ended.
func cutOff(t *testing.T, server *servers.Redis, ways []faultproxy.Direction) (time.Duration, error) {
	const ttl = 3 * time.Second // A busy machine must be able to renew in time.
	proxy := faultproxy.Start(t, server.Addr)
	proxy.Delay(faultproxy.Down, 0, 100*time.Millisecond) // The TTL does not begin when the answer comes.
	name := proxy.Addr()
	holder, other := locksOf(t, open(t, proxy.Addr(), nil)), locksOf(t, open(t, server.Addr, nil))
	lock, err := holder.Acquire(t.Context(), name, &holdfast.Options{TTL: ttl})
	if err != nil {
		return 0, err
	}
	ended := make(chan time.Time, 1)
	context.AfterFunc(lock.Context(), func() { ended <- time.Now() })
	cut := time.AfterFunc(rand.N(2*ttl), func() {
		for _, way := range ways {
			proxy.Hold(way)
		}
	})
	var next *holdfast.Lock
	for began := time.Now(); next == nil; <-time.After(time.Millisecond) {
		next, err = other.TryAcquire(t.Context(), name, &holdfast.Options{TTL: time.Minute})
		if err != nil && (!errors.Is(err, holdfast.ErrHeld) || time.Since(began) > bound) {
			return 0, fmt.Errorf("the lock of a holder that was cut off: %w", err)
		}
	}
	granted := time.UnixMicro(next.Token()) // by the server's clock, which is ours as well
	switch {
	case cut.Stop():
		return 0, errors.New("another client has the lock of a holder that was not cut off")
	case lock.Err() == nil || !lock.Deadline().Before(granted):
		return 0, fmt.Errorf("another client has the lock, and its first holder believed in it for %v", lock.Deadline().Sub(granted))
	}
	var margin time.Duration
	select {
	case end := <-ended:
		margin = granted.Sub(end)
	case <-time.After(bound):
		return 0, fmt.Errorf("the context of a lost lock goes on %v later", bound)
	}
	for _, way := range ways {
		proxy.Pass(way) // What the holder has sent arrives.
	}
	if err := lock.Release(); !errors.Is(err, holdfast.ErrLost) {
		return 0, fmt.Errorf("the release of a lost lock: %w, want ErrLost", err)
	}
	var by *holdfast.HeldError
	if _, err := holder.TryAcquire(t.Context(), name, nil); !errors.As(err, &by) || by.Record.Token != next.Token() {
		return 0, fmt.Errorf("the former holder, connected again, tries for the lock of its successor: %w, want ErrHeld", err)
	}
	return margin, next.Release()
}
