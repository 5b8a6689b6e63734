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
	Key     string    // as a name with Keys.Raw has it: "42" or "1,2"
	Shared  bool      // it is a lock of pg_advisory_lock_shared
	Granted bool      // the session holds it, and does not wait
	Since   time.Time // when the wait began (PostgreSQL 14 or later); zero for a lock that is granted

	PID         int32     // the server process: pg_terminate_backend ends it, with all its locks
	Application string    // its application_name, by default "holdfast host/pid" for that of a Store
	Connected   time.Time // when the session began; zero if the user may not see it
	BlockedBy   []int32   // the processes that a waiting session waits for
}

// locksQuery returns no time of a wait on a version that does not record it. A prepared transaction
// has no process. A standby refuses the function in the LIMIT.
const locksQuery = `SELECT CASE WHEN l.objsubid = 1 THEN (l.classid::bigint << 32 | l.objid::bigint)::text
		ELSE concat(l.classid::bigint::bit(32)::int, ',', l.objid::bigint::bit(32)::int) END,
	l.mode = 'ShareLock', l.granted, coalesce((to_jsonb(l) ->> 'waitstart')::timestamptz, '0001-01-01 UTC'), coalesce(l.pid, 0),
	coalesce(a.application_name, ''), coalesce(a.backend_start, '0001-01-01 UTC'), CASE WHEN l.granted THEN '{}' ELSE pg_blocking_pids(l.pid) END
FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
ORDER BY l.objsubid, l.classid, l.objid, l.granted DESC, 4, a.backend_start, l.pid
LIMIT CASE WHEN pg_current_wal_lsn() IS NULL THEN 0 END`

// Locks returns the advisory locks of the database, of all programs, and their waiters. It is a
// snapshot for people and tools, read through the pool in one statement that goes through the whole
// lock table of the server: do not call it many times a second.
func (s *Store) Locks(ctx context.Context) (locks []Lock, err error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf(ownPath, true), pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		rows, _ := tx.Query(ctx, locksQuery, pgx.QueryExecModeExec) // CollectRows returns its error.
		locks, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Lock, err error) {
			err = row.Scan(&l.Key, &l.Shared, &l.Granted, &l.Since, &l.PID, &l.Application, &l.Connected, &l.BlockedBy)
			return l, err
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read pg_locks: %w", wrapErr(err))
	}
	return locks, nil
}

// Lookup implements [driver.Store], as far as the server's data allow: of a session that has the
// key, of any program, the application and the process.
func (s *Store) Lookup(ctx context.Context, name string) (records []driver.Record, err error) {
	key, err := s.options.Keys.of(name)
	if err != nil {
		return nil, err
	}
	locks, err := s.Locks(ctx)
	for _, lock := range locks {
		if lock.Key == key && lock.Granted {
			records = append(records, driver.Record{Name: name, Holder: fmt.Sprintf("%s (PID %d)", lock.Application, lock.PID)})
		}
	}
	return records, err
}
