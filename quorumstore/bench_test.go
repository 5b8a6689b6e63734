//go:build unix

package quorumstore_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/quorumstore"
	"github.com/holdfast-go/holdfast/redisstore"
)

// BenchmarkPair measures acquire + release on a majority of five servers, each
// goroutine on a name of its own. The time that the processors have worked, for
// this process and for all servers, depends less on what else the machine does
// than the time that passes.
func BenchmarkPair(b *testing.B) {
	s := newSite(b, 5)
	var nodes []driver.Store
	for _, addr := range s.addrs {
		nodes = append(nodes, redisstore.New(dial(b, addr), nil))
	}
	store := quorumstore.New(nodes, nil)
	for _, goroutines := range []int{1, 64, 512} {
		b.Run(fmt.Sprint(goroutines), func(b *testing.B) {
			pairs(b, store, goroutines, 10*goroutines) // It connects.
			b.ReportAllocs()
			client, server := clientCPU(b), serverCPU(b, s.servers)
			b.ResetTimer()
			pairs(b, store, goroutines, b.N)
			n := float64(b.N)
			b.ReportMetric(n/b.Elapsed().Seconds(), "pairs/s")
			b.ReportMetric(float64(clientCPU(b)-client)/n/1e3, "client-µs/op")
			b.ReportMetric(float64(serverCPU(b, s.servers)-server)/n/1e3, "server-µs/op")
		})
	}
}

// pairs makes n pairs.
func pairs(b *testing.B, store driver.Store, goroutines, n int) {
	var left atomic.Int64
	left.Store(int64(n))
	var group sync.WaitGroup
	for g := range goroutines {
		group.Go(func() {
			req := driver.AcquireRequest{Name: fmt.Sprint("name/", g), Owner: "0123456789abcdef012345", Holder: "host/1234/abcdefgh", TTL: time.Minute}
			for left.Add(-1) >= 0 {
				if err := pair(store, req); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

func pair(store driver.Store, req driver.AcquireRequest) error {
	res, err := store.Acquire(context.Background(), req)
	if err != nil || !res.Granted {
		return fmt.Errorf("acquire: %v, %w", res, err)
	}
	_, err = store.Release(context.Background(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
	return err
}

// clientCPU returns the time that the processors have worked for this process.
func clientCPU(b *testing.B) time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// serverCPU returns the time that they have worked for all servers.
func serverCPU(b *testing.B, all []*servers.Redis) (total time.Duration) {
	for _, server := range all {
		for line := range strings.Lines(server.Do("INFO", "cpu")) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if name != "used_cpu_user_main_thread" && name != "used_cpu_sys_main_thread" {
				continue
			}
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			total += time.Duration(seconds * float64(time.Second))
		}
	}
	return total
}
