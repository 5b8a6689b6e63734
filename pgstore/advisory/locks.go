package advisory

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
)

// A Lock is an advisory lock of the database that a session of any program holds or waits for.
type Lock struct {
	// Key is the key. Name is the name of the lock if this Store holds it: the server stores keys
	// only.
	Key  Key
	Name string

	// Shared reports that the lock is one of pg_advisory_lock_shared.
	Shared bool

	// Granted is false for a session that waits.
	Granted bool

	// Since is when the Store was granted the lock, or when the wait began (PostgreSQL 14 or
	// later). It is zero where that is not known.
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

// locksQuery returns no time of a wait on a version that does not record it. It returns a row in any
// case. A prepared transaction has no process.
const locksQuery = `SELECT pg_catalog.pg_is_in_recovery(), l.granted IS NOT NULL, coalesce(l.objsubid = 2::smallint, false),
	coalesce(l.classid::bigint, 0), coalesce(l.objid::bigint, 0), coalesce(l.mode = 'ShareLock'::text, false), coalesce(l.granted, false),
	(pg_catalog.to_jsonb(l) ->> 'waitstart'::text)::timestamptz, coalesce(l.pid, 0), coalesce(a.application_name, ''::text), a.backend_start,
	CASE WHEN l.granted THEN '{}'::int[] ELSE pg_catalog.pg_blocking_pids(l.pid) END
FROM (VALUES (1)) AS one (row)
LEFT JOIN pg_catalog.pg_locks AS l ON l.locktype = 'advisory'::text
	AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
ORDER BY 3, 4, 5, l.granted DESC, 8, a.backend_start, l.pid`

// Lookup implements [driver.Store], as far as the server's data allow. A hold of this Store is
// described in full. Of any other session that has the key, of any program, nothing is known but
// that: [Store.Locks] shows its process.
func (s *Store) Lookup(ctx context.Context, name string) ([]driver.Record, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	key, err := s.options.Keys(name)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if e := s.holds[key]; e != nil && e.state == held && e.name == name && time.Now().Before(e.until) {
		defer s.mu.Unlock()
		return []driver.Record{e.record()}, nil
	}
	s.mu.Unlock()
	locks, err := s.readLocks(ctx)
	var records []driver.Record
	for _, lock := range locks {
		if lock.Key != key || !lock.Granted {
			continue
		}
		rec := driver.Record{Name: name, Holder: fmt.Sprintf("%s (PID %d)", lock.Application, lock.PID)}
		if lock.Shared {
			rec.Limit = driver.Shared
		}
		records = append(records, rec)
	}
	return records, err
}

// Locks yields the advisory locks of the database, of all programs, and their waiters. It is a
// snapshot for people and tools, read through the pool in one statement that goes through the whole
// lock table of the server: do not call it many times a second. The last thing that it yields may
// be an error.
func (s *Store) Locks(ctx context.Context) iter.Seq2[Lock, error] {
	return func(yield func(Lock, error) bool) {
		all, err := s.readLocks(ctx)
		for _, lock := range all {
			if !yield(lock, nil) {
				return
			}
		}
		if err != nil {
			yield(Lock{}, err)
		}
	}
}

func (s *Store) readLocks(ctx context.Context) ([]Lock, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	var all []Lock
	rows, err := s.pool.Query(ctx, locksQuery, pgx.QueryExecModeExec)
	if err == nil {
		all, err = scanLocks(rows)
	}
	if err != nil && !errors.Is(err, errStandby) {
		err = fmt.Errorf("read pg_locks: %w", s.wrapErr(err))
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range all {
		lock := &all[i]
		if e := s.holds[lock.Key]; e != nil && e.state == held && e.session.pid == uint32(lock.PID) {
			lock.Name, lock.Since = e.name, e.since.Round(0)
		}
	}
	return all, nil
}

func scanLocks(rows pgx.Rows) (all []Lock, err error) {
	var lock Lock
	var standby, found, pair bool
	var upper, lower int64
	var waiting, connected *time.Time
	columns := []any{&standby, &found, &pair, &upper, &lower, &lock.Shared, &lock.Granted, &waiting,
		&lock.PID, &lock.Application, &connected, &lock.BlockedBy}
	_, err = pgx.ForEachRow(rows, columns, func() error {
		switch {
		case standby:
			return errStandby
		case !found:
			return nil
		}
		lock.Key = Key{bits: upper<<32 | lower, pair: pair}
		lock.Since, lock.Connected = valueOrZero(waiting), valueOrZero(connected)
		all = append(all, lock)
		return nil
	})
	return all, err
}

func valueOrZero(t *time.Time) (value time.Time) {
	if t != nil {
		value = *t
	}
	return value
}
