//go:build unix

package pgstore

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
)

const contenders = 16

// BenchmarkContended measures pairs on one name that sixteen goroutines want: by
// the plain upsert, tried every 1 to 10 ms, by one client, and by a client for
// each.
func BenchmarkContended(b *testing.B) {
	pool, s := benchServer(b)
	b.Run("plain", func(b *testing.B) {
		contend(b, func(int) func() (func() error, error) { return func() (func() error, error) { return poll(pool) } })
	})
	b.Run("client", func(b *testing.B) {
		locks := holdfast.New(s, nil)
		defer locks.Close()
		contend(b, func(int) func() (func() error, error) { return waiter(locks) })
	})
	b.Run("clients", func(b *testing.B) {
		contend(b, func(int) func() (func() error, error) {
			own := New(pool, nil)
			locks := holdfast.New(own, nil)
			b.Cleanup(func() { _, _ = locks.Close(), own.Close() })
			return waiter(locks)
		})
	})
}

// poll takes the plain lock, and returns how to release it.
func poll(pool *pgxpool.Pool) (release func() error, err error) {
	ctx := context.Background()
	for {
		var taken string
		err := pool.QueryRow(ctx, upsert, "name", "owner").Scan(&taken)
		if err == nil {
			return func() error { _, err := pool.Exec(ctx, remove, "name", "owner"); return err }, nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return nil, err
		}
		time.Sleep(time.Millisecond + rand.N(9*time.Millisecond))
	}
}

// waiter waits for the lock as users do.
func waiter(locks *holdfast.Client) func() (release func() error, err error) {
	return func() (func() error, error) {
		lock, err := locks.Acquire(context.Background(), "name", nil)
		if err != nil {
			return nil, err
		}
		return lock.Release, nil
	}
}

// contend lets everybody take the lock in turn, b.N times in all, and reports
// how evenly they get it, and how long it lies idle between two of them.
func contend(b *testing.B, open func(i int) (take func() (release func() error, err error))) {
	counts := make([]float64, contenders)
	var gaps []time.Duration
	var released time.Time // protected by the lock, as the two above
	var left atomic.Int64
	left.Store(int64(b.N))
	var group sync.WaitGroup
	b.ResetTimer()
	for i := range contenders {
		take := open(i)
		group.Go(func() {
			for left.Add(-1) >= 0 {
				release, err := take()
				if err != nil {
					b.Error(err)
					return
				}
				if !released.IsZero() {
					gaps = append(gaps, time.Since(released))
				}
				counts[i]++
				released = time.Now()
				if err := release(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	group.Wait()
	b.StopTimer()
	sum, squares := 0.0, 0.0
	for _, n := range counts {
		sum, squares = sum+n, squares+n*n
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
	b.ReportMetric(sum*sum/(contenders*squares), "Jain")
	if slices.SortFunc(gaps, cmp.Compare); len(gaps) > 0 {
		b.ReportMetric(float64(gaps[len(gaps)/2].Microseconds()), "p50-µs")
		b.ReportMetric(float64(gaps[len(gaps)*99/100].Microseconds()), "p99-µs")
	}
}
