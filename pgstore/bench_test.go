//go:build unix

package pgstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// benchServer is a server of its own, with a store and the plain table of those
// who write the two statements themselves.
func benchServer(b *testing.B, parameters ...string) (*pgxpool.Pool, *Store) {
	b.Helper()
	server := servers.StartPostgres(b)
	migrated(b, server.URL("postgres"), nil)
	pgtest.Execute(b, server.URL("postgres"), `CREATE TABLE plain (lock_name varchar(255) PRIMARY KEY, holder_id varchar(255) NOT NULL,
		acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb)`)
	pool := pgtest.OpenPool(b, server.URL("postgres"), append(parameters, "pool_max_conns=64")...)
	s := New(pool, nil)
	b.Cleanup(func() { _ = s.Close() })
	return pool, s
}

const (
	upsert = `INSERT INTO plain VALUES ($1, $2, now(), now() + interval '1 minute', '{}')
		ON CONFLICT (lock_name) DO UPDATE SET holder_id = excluded.holder_id, acquired_at = excluded.acquired_at, expires_at = excluded.expires_at
		WHERE plain.expires_at <= now() RETURNING lock_name`
	remove = "DELETE FROM plain WHERE lock_name = $1 AND holder_id = $2"
)

type pairFunc func(ctx context.Context, name, owner string) error

func plainPair(pool *pgxpool.Pool) pairFunc {
	return func(ctx context.Context, name, owner string) error {
		var taken string
		if err := pool.QueryRow(ctx, upsert, name, owner).Scan(&taken); err != nil {
			return err
		}
		_, err := pool.Exec(ctx, remove, name, owner)
		return err
	}
}

func storePair(s *Store) pairFunc {
	return func(ctx context.Context, name, owner string) error {
		res, err := s.Acquire(ctx, driver.AcquireRequest{Name: name, Owner: owner, Holder: "host/1234/abcdefgh", TTL: time.Minute})
		if err != nil || !res.Granted {
			return fmt.Errorf("acquire: %v, %w", res, err)
		}
		_, err = s.Release(ctx, driver.ReleaseRequest{Name: name, Owner: owner})
		return err
	}
}

// BenchmarkPair measures acquire + release, each goroutine on a name of its own,
// beside the plain upsert and delete through the same pool.
func BenchmarkPair(b *testing.B) {
	pool, s := benchServer(b)
	for _, goroutines := range []int{1, 16, 64} {
		for _, kind := range []struct {
			name string
			pair pairFunc
		}{{"plain", plainPair(pool)}, {"store", storePair(s)}} {
			b.Run(fmt.Sprintf("%s/%d", kind.name, goroutines), func(b *testing.B) {
				each(b, goroutines, func(g int) error {
					return kind.pair(context.Background(), fmt.Sprint("name/", g), "0123456789abcdef012345")
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
			})
		}
	}
}

// BenchmarkRefused measures attempts to take a lock that somebody has, and what
// they write to the log, beside the shortest statement that there is.
func BenchmarkRefused(b *testing.B) {
	pool, s := benchServer(b)
	ctx := context.Background()
	if err := storePair(s)(ctx, "warm", "up"); err != nil {
		b.Fatal(err)
	}
	if _, err := s.Acquire(ctx, pgtest.Request("name", time.Hour)); err != nil {
		b.Fatal(err)
	}
	if _, err := pool.Exec(ctx, "INSERT INTO plain VALUES ('name', 'x', now(), now() + interval '1 hour', '{}')"); err != nil {
		b.Fatal(err)
	}
	for _, goroutines := range []int{1, 16} {
		for _, kind := range []struct {
			name    string
			attempt func() error
		}{
			{"select", func() error {
				_, err := pool.Exec(ctx, "SELECT 1")
				return err
			}},
			{"plain", func() error {
				_, err := pool.Exec(ctx, upsert, "name", "other")
				return err
			}},
			{"store", func() error {
				_, err := s.Acquire(ctx, driver.AcquireRequest{Name: "name", Owner: "other", Holder: "host", TTL: time.Minute})
				return err
			}},
		} {
			b.Run(fmt.Sprintf("%s/%d", kind.name, goroutines), func(b *testing.B) {
				share(b, goroutines, 10*goroutines, func(int) error { return kind.attempt() })
				before := walBytes(b, pool)
				each(b, goroutines, func(int) error { return kind.attempt() })
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "attempts/s")
				b.ReportMetric(float64(walBytes(b, pool)-before)/float64(b.N), "WAL-B/op")
			})
		}
	}
}

// BenchmarkRenew measures the renewal of a thousand holds.
func BenchmarkRenew(b *testing.B) {
	_, s := benchServer(b)
	var reqs []driver.AcquireRequest
	for i := range 1000 {
		req := pgtest.Request(fmt.Sprint("name/", i), time.Hour)
		if _, err := s.Acquire(context.Background(), req); err != nil {
			b.Fatal(err)
		}
		reqs = append(reqs, req)
	}
	before := walBytes(b, s.pool.(pgxPool).Pool)
	each(b, 1, func(int) error {
		_, err := s.Renew(context.Background(), pgtest.Renewals(reqs...))
		return err
	})
	b.ReportMetric(float64(walBytes(b, s.pool.(pgxPool).Pool)-before)/float64(b.N)/float64(len(reqs)), "WAL-B/renewal")
}

// BenchmarkTableSize shows the size of the table after b.N pairs on a thousand
// names; run it with -benchtime=1000000x.
func BenchmarkTableSize(b *testing.B) {
	_, s := benchServer(b, "synchronous_commit=off")
	pair := storePair(s)
	var counts [16]int
	each(b, len(counts), func(g int) error {
		counts[g]++
		return pair(context.Background(), fmt.Sprint("name/", g, "/", counts[g]%62), "0123456789abcdef")
	})
	var size, hot, all int64
	text := "SELECT pg_total_relation_size(relid), n_tup_hot_upd, n_tup_upd FROM pg_stat_user_tables WHERE relname = 'distributed_locks'"
	if err := s.queryRow(context.Background(), text, nil, &size, &hot, &all); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(size), "table-B")
	b.ReportMetric(float64(hot)/float64(max(all, 1)), "HOT")
}

// each calls f b.N times from a number of goroutines.
func each(b *testing.B, goroutines int, f func(g int) error) {
	b.ResetTimer()
	share(b, goroutines, b.N, f)
	b.StopTimer()
}

// share calls f n times from a number of goroutines.
func share(b *testing.B, goroutines, n int, f func(g int) error) {
	var left atomic.Int64
	left.Store(int64(n))
	var group sync.WaitGroup
	for g := range goroutines {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				if err := f(g); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

func walBytes(b *testing.B, pool *pgxpool.Pool) (bytes int64) {
	b.Helper()
	if err := pool.QueryRow(context.Background(), "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint").Scan(&bytes); err != nil {
		b.Fatal(err)
	}
	return bytes
}
