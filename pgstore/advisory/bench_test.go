//go:build unix

package advisory

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// BenchmarkPair measures an acquisition and its release through the store, alone,
// beside others and refused. The part of it that is the store's own shows in
// "ratio": the time of the two statements on a connection of pgx by that of the
// store, taken by turns.
func BenchmarkPair(b *testing.B) {
	server := pgtest.Postgres()
	b.Run("ratio", func(b *testing.B) {
		conn, err := pgx.Connect(b.Context(), server.URL("postgres"))
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close(b.Context())
		s := open(b, server.Addr, keysOf(b))
		var raw, ours time.Duration
		for b.Loop() {
			began := time.Now()
			rawPair(b, conn)
			between := time.Now()
			storePair(b, s, "name")
			raw += between.Sub(began)
			ours += time.Since(between)
		}
		b.ReportMetric(float64(raw)/float64(ours), "ratio")
		b.ReportMetric(float64(raw.Nanoseconds())/float64(b.N), "raw-ns/op")
		b.ReportMetric(float64(ours.Nanoseconds())/float64(b.N), "store-ns/op")
	})
	b.Run("look", func(b *testing.B) {
		// A release checks for waiters: beside one that does not.
		s, blind := open(b, server.Addr, keysOf(b)), open(b, server.Addr, keysOf(b))
		blind.statements["holdfast_unlock"] = "SELECT CASE WHEN pg_advisory_unlock($1::bigint) THEN $2::int IS NOT NULL AND $3::int IS NOT NULL END"
		var with, without []time.Duration
		for b.Loop() {
			began := time.Now()
			storePair(b, blind, "name")
			between := time.Now()
			storePair(b, s, "name")
			without, with = append(without, between.Sub(began)), append(with, time.Since(between))
		}
		b.ReportMetric(float64(median(with))/float64(median(without)), "ratio")
	})
	b.Run("store", func(b *testing.B) {
		s := open(b, server.Addr, keysOf(b))
		for b.Loop() {
			storePair(b, s, "name")
		}
	})
	b.Run("store-16", func(b *testing.B) {
		s := open(b, server.Addr, keysOf(b))
		var lanes atomic.Int32
		b.SetParallelism(8)
		b.RunParallel(func(pb *testing.PB) {
			name := string(rune('a' + lanes.Add(1)))
			for pb.Next() {
				storePair(b, s, name)
			}
		})
	})
	b.Run("refused", func(b *testing.B) {
		holder, s := open(b, server.Addr, keysOf(b)), open(b, server.Addr, keysOf(b))
		if res, err := holder.Acquire(b.Context(), pgtest.Request("name", time.Hour)); err != nil || !res.Granted {
			b.Fatal(res, err)
		}
		for b.Loop() {
			if res, err := s.Acquire(b.Context(), pgtest.Request("name", time.Hour)); err != nil || res.Granted {
				b.Fatal(res, err)
			}
		}
	})
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

func rawPair(b *testing.B, conn *pgx.Conn) {
	for _, text := range []string{"SELECT pg_try_advisory_lock($1)", "SELECT pg_advisory_unlock($1)"} {
		var done bool
		if err := conn.QueryRow(b.Context(), text, 42).Scan(&done); err != nil || !done {
			b.Fatal(done, err)
		}
	}
}

func storePair(b *testing.B, s *Store, name string) {
	req := pgtest.Request(name, 30*time.Second)
	res, err := s.Acquire(b.Context(), req)
	if err != nil || !res.Granted {
		b.Fatal(res, err)
	}
	if ours, err := s.Release(b.Context(), driver.ReleaseRequest{Name: name, Owner: req.Owner}); err != nil || !ours {
		b.Fatal(ours, err)
	}
}
