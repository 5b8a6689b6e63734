//go:build unix

package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// BenchmarkPair measures acquire + release, each goroutine on a name of its
// own, beside the plain commands that no lock can do without: SET NX PX, and a
// script that compares and deletes.
func BenchmarkPair(b *testing.B) {
	server := servers.StartRedis(b)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	defer client.Close()
	store := New(client, nil)
	defer store.Close()
	guarded := New(client, &Options{Prefix: "guarded:", RestartGuard: time.Second})
	defer guarded.Close()
	for _, s := range []*Store{store, guarded} {
		ready := storePair(s)
		for ready(context.Background(), "name", "owner") != nil {
			time.Sleep(10 * time.Millisecond)
		}
	}
	auto, err := client.AutoPipeline()
	if err != nil {
		b.Fatal(err)
	}
	for _, goroutines := range []int{1, 64, 512} {
		for _, kind := range []struct {
			name string
			pair func(ctx context.Context, name, owner string) error
		}{
			{"raw", rawPair(client)},
			{"raw-pipelined", rawPair(auto)},
			{"store", storePair(store)},
			{"guarded", storePair(guarded)},
		} {
			b.Run(fmt.Sprintf("%s/%d", kind.name, goroutines), func(b *testing.B) {
				b.ReportAllocs()
				before := serverCPU(b, server)
				benchPairs(b, goroutines, kind.pair)
				b.ReportMetric(float64(serverCPU(b, server)-before)/float64(b.N)*1e3, "server-ns/op")
			})
		}
	}
}

func benchPairs(b *testing.B, goroutines int, pair func(ctx context.Context, name, owner string) error) {
	ctx := context.Background()
	var left atomic.Int64
	left.Store(int64(b.N))
	var group sync.WaitGroup
	for g := range goroutines {
		group.Go(func() {
			name := fmt.Sprint("name/", g)
			for left.Add(-1) >= 0 {
				if err := pair(ctx, name, "0123456789abcdef012345"); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
}

func rawPair(client redis.Cmdable) func(context.Context, string, string) error {
	del := redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	return func(ctx context.Context, name, owner string) error {
		if err := client.SetNX(ctx, name, owner, time.Minute).Err(); err != nil {
			return err
		}
		return del.Run(ctx, client, []string{name}, owner).Err()
	}
}

func storePair(store driver.Store) func(context.Context, string, string) error {
	return func(ctx context.Context, name, owner string) error {
		res, err := store.Acquire(ctx, driver.AcquireRequest{Name: name, Owner: owner, Holder: "host/1234/abcdefgh", TTL: time.Minute})
		if err != nil || !res.Granted {
			return fmt.Errorf("acquire: %v, %w", res, err)
		}
		_, err = store.Release(ctx, driver.ReleaseRequest{Name: name, Owner: owner})
		return err
	}
}

// serverCPU returns the time that the server's processor has worked for it, in
// microseconds: unlike the time that passes it does not depend on what else the
// machine does.
func serverCPU(b *testing.B, server *servers.Redis) (micros int64) {
	for line := range strings.Lines(server.Do("INFO", "cpu")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "used_cpu_user_main_thread" && name != "used_cpu_sys_main_thread" {
			continue
		}
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil {
			b.Fatal(err)
		}
		micros += int64(seconds * 1e6)
	}
	return micros
}
