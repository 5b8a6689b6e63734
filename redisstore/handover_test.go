//go:build unix

package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/redisstore"
)

// A lock goes from one process to another that waits for it within a few round
// trips. The network is slow, so that round trips are what counts.
func TestHandOverBetweenProcesses(t *testing.T) {
	var lock *holdfast.Lock
	if obey(t, func(locks *holdfast.Client, words []string) string {
		if words[0] == "free" {
			return strconv.FormatBool(lock.Release() == nil)
		}
		var err error
		if lock, err = locks.Acquire(context.Background(), "name", nil); err != nil {
			return err.Error()
		}
		return strconv.FormatInt(time.Now().UnixMicro(), 10)
	}) {
		return
	}
	t.Parallel()
	server := servers.StartRedis(t)
	handOver(t, server, server.Addr, 0)
	const delay = 10 * time.Millisecond
	proxy := faultproxy.Start(t, server.Addr)
	proxy.Delay(faultproxy.Up, delay, delay)
	proxy.Delay(faultproxy.Down, delay, delay)
	if fastest, trip := handOver(t, server, proxy.Addr(), 2*delay); fastest >= 3*trip {
		t.Errorf("the fastest hand-over took %v, want less than three round trips of %v", fastest, trip)
	}
}

// roundTrip measures the mean time of a command.
func roundTrip(t *testing.T, addr string) time.Duration {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	const times = 50
	var began time.Time
	for i := range 2 * times {
		if i == times { // The connection is there.
			began = time.Now()
		}
		if err := client.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return time.Since(began) / times
}

// handOver measures the time from a release in this process to the end of the
// Acquire of another, and returns the shortest, and the time of a round trip,
// which is so long at least.
func handOver(t *testing.T, server *servers.Redis, addr string, least time.Duration) (fastest, trip time.Duration) {
	t.Helper()
	trip = roundTrip(t, addr)
	locks := connect(t, addr, nil)
	waiter := startOwn(t, "waiter", addr)
	var all []time.Duration
	for range rounds(t, 10) {
		lock, err := locks.Acquire(t.Context(), "name", nil)
		if err != nil {
			t.Fatal(err)
		}
		taken := make(chan string, 1)
		go func() { taken <- waiter.do("take") }()
		awaitPlace(t, server, "lock:", "name")
		<-time.After(2 * least) // It has its answer.
		released := time.Now()
		if err := lock.Release(); err != nil {
			t.Fatal(err)
		}
		at, err := strconv.ParseInt(<-taken, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, time.UnixMicro(at).Sub(released))
		waiter.must("true", "free")
	}
	slices.Sort(all)
	var total time.Duration
	for _, d := range all {
		total += d
	}
	mean := total / time.Duration(len(all))
	t.Logf("with round trips of %v a hand-over takes %v on average (%.1f round trips), at least %v",
		trip.Round(time.Microsecond), mean.Round(time.Microsecond), float64(mean)/float64(trip), all[0].Round(time.Microsecond))
	return all[0], trip
}

// awaitPlace returns when the queue of a lock has a place.
func awaitPlace(t *testing.T, server *servers.Redis, prefix, name string) {
	t.Helper()
	eventually(t, "place", func() bool { return server.Do("EXISTS", prefix+"\x1fqueue\x1f"+prefix+name) == "1" })
}

// scripts counts the scripts that a server has run.
func scripts(server *servers.Redis) int {
	for line := range strings.Lines(server.Do("INFO", "commandstats")) {
		var n int
		if _, err := fmt.Sscanf(line, "cmdstat_evalsha:calls=%d,", &n); err == nil {
			return n
		}
	}
	return 0
}

// A hand-over takes two scripts, the request for a place and the release, with one client that waits
// and with a hundred. The renewals of places come with the time that passes, and are not counted.
func TestScriptsForAHandOver(t *testing.T) {
	t.Parallel()
	for _, waiters := range []int{1, 8, 100} {
		t.Run(strconv.Itoa(waiters), func(t *testing.T) {
			t.Parallel()
			server := servers.StartRedis(t)
			type turn struct {
				lock  *holdfast.Lock
				again chan struct{} // lets the client try again
			}
			turns := make(chan turn)
			var renewals renewalCount
			var group sync.WaitGroup
			defer group.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for range waiters + 1 {
				client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
				store := redisstore.New(client, nil)
				locks := holdfast.New(renewalCounter{store, &renewals}, nil)
				own := turn{again: make(chan struct{})}
				group.Go(func() {
					defer client.Close()
					defer store.Close()
					defer locks.Close()
					for ctx.Err() == nil {
						var err error
						if own.lock, err = locks.Acquire(ctx, "name", nil); err != nil {
							continue
						}
						select {
						case turns <- own:
							select {
							case <-own.again:
							case <-ctx.Done():
							}
						case <-ctx.Done():
						}
					}
				})
			}
			awaitPlaces := func(n int) {
				eventually(t, "places", func() bool {
					return server.Do("ZCARD", "lock:\x1fqueue\x1flock:name") == strconv.Itoa(n)
				})
			}
			handOver := func(last turn) turn {
				if err := last.lock.Release(); err != nil {
					t.Error(err)
				}
				next := <-turns
				awaitPlaces(waiters - 1)
				last.again <- struct{}{}
				awaitPlaces(waiters)
				return next
			}
			last := <-turns
			awaitPlaces(waiters)
			last = handOver(last) // The scripts are known.
			const handOvers = 20
			count := func() int { // of the scripts that are not renewals
				renewals.mu.Lock() // None is in flight.
				defer renewals.mu.Unlock()
				return scripts(server) - renewals.n
			}
			before := count()
			for range handOvers {
				last = handOver(last)
			}
			if sent := count() - before; sent != 2*handOvers {
				t.Errorf("%d hand-overs took %d scripts, want two for each", handOvers, sent)
			}
		})
	}
}

// A renewalCount counts requests for renewals, each of which is one script.
type renewalCount struct {
	mu sync.Mutex // held during each
	n  int
}

type renewalCounter struct {
	*redisstore.Store
	count *renewalCount
}

func (c renewalCounter) Renew(ctx context.Context, requests []driver.RenewRequest) ([]driver.RenewOutcome, error) {
	c.count.mu.Lock()
	defer c.count.mu.Unlock()
	c.count.n++
	return c.Store.Renew(ctx, requests)
}
