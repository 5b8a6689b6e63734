//go:build unix

package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/bench/internal/lockers"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/internal/measure"
	"github.com/holdfast-go/holdfast/pgstore"
)

func postgresScenarios() []scenario {
	var all []scenario
	for _, goroutines := range []int{1, 16, 64} {
		all = append(all, postgresPairs("table", "PostgreSQL: a row that expires", goroutines,
			"Acquire and release in a loop. Every acquisition is a commit that waits for the disk, and so is every release "+
				"but that of Holdfast, unless it is durable.", lockers.PostgresLease()))
	}
	advisory := slices.Concat(lockers.PostgresAdvisory(), lockers.PostgresAdvisoryRaw())
	for _, goroutines := range []int{1, 16, 64} {
		all = append(all, postgresPairs("advisory", "PostgreSQL: advisory locks", goroutines,
			"Acquire and release in a loop. Nothing is written.", advisory))
	}
	waiting := slices.Concat(lockers.PostgresLease()[:1], lockers.PostgresPolling(), lockers.PostgresAdvisory())
	contended := contendedGoroutines()
	contended.name, contended.metrics, contended.ttl = "postgres-contended", contendedMetrics[:2], 0
	handOver := handOver()
	handOver.name = "postgres-handover"
	for _, sc := range []scenario{contended, handOver} {
		sc.group, sc.nodes, sc.postgres, sc.contenders = "PostgreSQL: waiting", 0, true, waiting
		all = append(all, sc)
	}
	return all
}

func postgresPairs(kind, group string, goroutines int, about string, contenders []lockers.Contender) scenario {
	return scenario{
		name: fmt.Sprintf("postgres-%s-%d", kind, goroutines), group: group, about: about,
		title: goroutinesText(goroutines), contenders: contenders, postgres: true,
		metrics: []result.Metric{
			{Key: "rate", Title: "pairs/s", Unit: result.Rate, Chart: true},
			{Key: "allocs", Title: "allocations", Unit: result.Count, Lower: true},
			{Key: "bytes", Title: "memory", Unit: result.Bytes, Lower: true},
			{Key: "client", Title: "client CPU", Unit: result.Micros, Lower: true},
			{Key: "wal", Title: "written ahead", Unit: result.Bytes, Lower: true},
		},
		measure: pairs(goroutines, measure.OwnNames("job")),
	}
}

// createTables creates the tables that the contenders need.
func (r *scenarioRun) createTables() error {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, r.pg.URL("postgres"))
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, lockers.PostgresPlain); err != nil {
		return err
	}
	store := pgstore.New(pool, nil)
	defer store.Close()
	return store.Migrate(ctx)
}

// walBytes returns how many bytes the server has written to its write-ahead log, 0 if there is
// no PostgreSQL server.
func (r *scenarioRun) walBytes() (bytes float64, err error) {
	if r.pg != nil {
		err = r.queryValue("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8", &bytes)
	}
	return bytes, err
}

// queryValue runs a query that returns one value.
func (r *scenarioRun) queryValue(query string, value any) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, r.pg.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.QueryRow(ctx, query).Scan(value)
}
