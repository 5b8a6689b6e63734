//go:build unix

package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/bench/internal/contend"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore"
)

// pgMetrics are those that PostgreSQL can be asked for.
var pgMetrics = []result.Metric{
	{Key: "rate", Title: "pairs/s", Unit: result.Rate, Chart: true},
	{Key: "allocs", Title: "allocations", Unit: result.Count, Lower: true},
	{Key: "bytes", Title: "memory", Unit: result.Bytes, Lower: true},
	{Key: "client", Title: "client CPU", Unit: result.Micros, Lower: true},
	{Key: "wal", Title: "written ahead", Unit: result.Bytes, Lower: true},
}

func postgresLease(goroutines int) scenario {
	return scenario{
		name:  fmt.Sprint("postgres-table-", goroutines),
		group: "PostgreSQL: a row that expires",
		title: fmt.Sprintf("%s, each on a name of its own", counted(goroutines)),
		about: "Acquire and release in a loop. Every acquisition is a commit that waits for the disk, and so is every release " +
			"but that of Holdfast, where it is not said to be durable.",
		metrics: pgMetrics, kinds: contend.PostgresLease(), postgres: true,
		measure: func(s *scene, k contend.Kind) (result.Sample, error) { return s.throughput(k, goroutines, ownNames) },
	}
}

// postgresContended is many goroutines of one process that want one name.
func postgresContended() scenario {
	const goroutines = 16
	return scenario{
		name:  "postgres-contended",
		group: "PostgreSQL: waiting",
		title: "16 goroutines of one process on one name",
		about: "Each acquires and releases in a loop, without work in between. Fairness is Jain's index over the goroutines: " +
			"1 if all had the lock equally often, 0.06 if one had it always.",
		metrics: []result.Metric{
			{Key: "rate", Title: "pairs/s", Unit: result.Rate, Chart: true},
			{Key: "fair", Title: "fairness", Unit: result.Fraction},
		},
		kinds: waitingPostgres(), postgres: true,
		measure: func(s *scene, k contend.Kind) (sample result.Sample, err error) {
			err = s.with(k, func(ctx context.Context, c contend.Contender) error {
				if _, err := load(ctx, c, goroutines, oneName, s.span/4); err != nil {
					return err
				}
				counts, err := load(ctx, c, goroutines, oneName, s.span)
				sample.Values = map[string]float64{"rate": sum(counts) / s.span.Seconds(), "fair": result.Jain(counts)}
				return err
			})
			return sample, err
		},
	}
}

// postgresHandover is how long a lock lies idle between two processes.
func postgresHandover() scenario {
	sc := handover()
	sc.name, sc.group = "postgres-handover", "PostgreSQL: waiting"
	sc.kinds, sc.nodes, sc.postgres = waitingPostgres(), 0, true
	return sc
}

// waitingPostgres lists those who can wait for a lock.
func waitingPostgres() []contend.Kind {
	return slices.Concat(contend.PostgresLease()[:1], contend.PostgresPolling(), contend.PostgresAdvisory())
}

func postgresAdvisory(goroutines int) scenario {
	kinds := append(contend.PostgresAdvisory(), contend.PostgresAdvisoryRaw()...)
	return scenario{
		name:    fmt.Sprint("postgres-advisory-", goroutines),
		group:   "PostgreSQL: advisory locks",
		title:   fmt.Sprintf("%s, each on a name of its own", counted(goroutines)),
		about:   "Acquire and release in a loop. Nothing is written.",
		metrics: pgMetrics, kinds: kinds, postgres: true,
		measure: func(s *scene, k contend.Kind) (result.Sample, error) { return s.throughput(k, goroutines, ownNames) },
	}
}

func counted(goroutines int) string {
	if goroutines == 1 {
		return "1 goroutine"
	}
	return fmt.Sprint(goroutines, " goroutines")
}

// startPostgres starts a server with the tables that the contenders need.
func (s *scene) startPostgres() error {
	s.pg = servers.StartPostgres(s.tb)
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, s.pg.URL("postgres"))
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, contend.PostgresPlain); err != nil {
		return err
	}
	store := pgstore.New(pool, nil)
	defer store.Close()
	return store.Migrate(ctx)
}

// wal returns how many bytes the server has written ahead.
func (s *scene) wal() (float64, error) {
	if s.pg == nil {
		return 0, nil
	}
	var bytes float64
	err := s.ask("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8", &bytes)
	return bytes, err
}

// ask runs a query of one value.
func (s *scene) ask(query string, value any) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, s.pg.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.QueryRow(ctx, query).Scan(value)
}
