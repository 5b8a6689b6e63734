package advisory

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
)

// A Lock is an advisory lock of the database that a session of any program holds or waits for.
type Lock struct {
	Key     Key
	Shared  bool // it is a lock of pg_advisory_lock_shared
	Granted bool // the session holds it, and does not wait

	// Since is when the wait began (PostgreSQL 14 or later), and zero for a lock that is granted.
	Since time.Time

	// PID is the server process: pg_terminate_backend(PID) ends the session, with all its locks.
	// Application is its application_name, by default "holdfast host/pid" for that of a Store.
	// Connected is when the session began, and zero if the user may not see it.
	PID         int32
	Application string
	Connected   time.Time

	// BlockedBy are the processes that a waiting session waits for.
	BlockedBy []int32
}

// locksQuery returns no time of a wait on a version that does not record it. It returns a row in
// any case, to show whether the server is a standby. A prepared transaction has no process.
const locksQuery = `SELECT pg_catalog.pg_is_in_recovery(), l.granted IS NOT NULL,
	coalesce(CASE WHEN l.objsubid = 1::smallint THEN (l.classid::bigint << 32 | l.objid::bigint)::text
		ELSE pg_catalog.concat(l.classid::bigint::bit(32)::int, ','::text, l.objid::bigint::bit(32)::int) END, ''::text),
	coalesce(l.mode = 'ShareLock'::text, false), coalesce(l.granted, false),
	coalesce((pg_catalog.to_jsonb(l) ->> 'waitstart'::text)::timestamptz, '0001-01-01 UTC'::timestamptz), coalesce(l.pid, 0),
	coalesce(a.application_name, ''::text), coalesce(a.backend_start, '0001-01-01 UTC'::timestamptz),
	CASE WHEN l.granted THEN '{}'::int[] ELSE pg_catalog.pg_blocking_pids(l.pid) END
FROM (VALUES (1)) AS one (row)
LEFT JOIN pg_catalog.pg_locks AS l ON l.locktype = 'advisory'::text
	AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
ORDER BY l.objsubid, l.classid, l.objid, l.granted DESC, 6, a.backend_start, l.pid`

// Locks returns the advisory locks of the database, of all programs, and their waiters. It is a
// snapshot for people and tools, read through the pool in one statement that goes through the whole
// lock table of the server: do not call it many times a second.
func (s *Store) Locks(ctx context.Context) (locks []Lock, err error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	var lock Lock
	var standby, found bool
	rows, _ := s.pool.Query(ctx, locksQuery, pgx.QueryExecModeExec) // ForEachRow returns its error.
	_, err = pgx.ForEachRow(rows, []any{
		&standby, &found, &lock.Key.text, &lock.Shared, &lock.Granted,
		&lock.Since, &lock.PID, &lock.Application, &lock.Connected, &lock.BlockedBy,
	}, func() error {
		if found {
			locks = append(locks, lock)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("read pg_locks: %w", s.wrapErr(err))
	case standby:
		return nil, errStandby
	}
	return locks, nil
}

// Lookup implements [driver.Store], as far as the server's data allow: of a session that has the
// key, of any program, the application and the process.
func (s *Store) Lookup(ctx context.Context, name string) (records []driver.Record, err error) {
	key, err := s.options.Keys(name)
	if err != nil {
		return nil, err
	}
	locks, err := s.Locks(ctx)
	for _, lock := range locks {
		if lock.Key == key && lock.Granted {
			rec := driver.Record{Name: name, Holder: fmt.Sprintf("%s (PID %d)", lock.Application, lock.PID)}
			if lock.Shared {
				rec.Limit = driver.Shared
			}
			records = append(records, rec)
		}
	}
	return records, err
}
