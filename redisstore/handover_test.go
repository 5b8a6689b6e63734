//go:build unix

package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
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
