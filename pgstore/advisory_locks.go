package pgstore

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
)

// An AdvisoryLock is an advisory lock of the database that a session has, or
// waits for: of any program's. Those who wait for a lock in an AdvisoryStore are
// shown by the process that is to tell them of its release, and for a second
// longer.
type AdvisoryLock struct {
	// Key is the key. Name is the name of the lock if this very Store holds it:
	// the server knows keys only.
	Key  Key
	Name string

	// Shared reports that the lock is one of pg_advisory_lock_shared.
	Shared bool

	// Granted is false for a session that waits.
	Granted bool

	// Since is when the Store was granted the lock, or when the wait began
	// (PostgreSQL 14 or later). It is zero where nobody knows.
	Since time.Time

	// PID is the server process: pg_terminate_backend(PID) ends the session,
	// with all its locks. Application is its application_name, by default
	// "holdfast host/pid" for that of a Store. Connected is when it began,
	// zero if the user may not see it.
	PID         int32
	Application string
	Connected   time.Time

	// BlockedBy are the processes that a waiting session waits for.
	BlockedBy []int32
}

// locksQuery finds no wait of a version that does not record its begin.
const locksQuery = `SELECT l.objsubid = 2, l.classid::bigint, l.objid::bigint, l.mode = 'ShareLock', l.granted,
	(to_jsonb(l) ->> 'waitstart')::timestamptz, l.pid, coalesce(a.application_name, ''), a.backend_start,
	CASE WHEN l.granted THEN '{}' ELSE pg_blocking_pids(l.pid) END
FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a USING (pid)
WHERE l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
ORDER BY 1, 2, 3, l.granted DESC, 6`

// Locks yields the advisory locks of the database, whoever has them, and those
// who wait for one. It is a picture of the past
// for people and tools, read by way of the pool in one statement that looks at
// the whole of the server's lock table: not something to do many times a second.
// The last thing that it yields may be an error.
func (s *AdvisoryStore) Locks(ctx context.Context) iter.Seq2[AdvisoryLock, error] {
	return func(yield func(AdvisoryLock, error) bool) {
		all, err := s.locks(ctx)
		for _, lock := range all {
			if !yield(lock, nil) {
				return
			}
		}
		if err != nil {
			yield(AdvisoryLock{}, err)
		}
	}
}

func (s *AdvisoryStore) locks(ctx context.Context) ([]AdvisoryLock, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	rows, err := s.pool.Query(ctx, locksQuery, pgx.QueryExecModeExec)
	if err != nil {
		return nil, fmt.Errorf("read pg_locks: %w", s.fault(err))
	}
	all, err := pgx.CollectRows(rows, scanLock)
	if err != nil {
		return nil, fmt.Errorf("read pg_locks: %w", s.fault(err))
	}
	readMarks(all)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range all {
		lock := &all[i]
		if c := s.claims[lock.Key]; c != nil && c.state == held && c.on.pid == uint32(lock.PID) {
			lock.Name, lock.Since = c.name, c.since.Round(0)
		}
	}
	return all, nil
}

// readMarks makes those who wait of the marks of locks that somebody has.
func readMarks(all []AdvisoryLock) {
	holders := map[Key]AdvisoryLock{}
	for _, lock := range all {
		if lock.Granted && !lock.Shared {
			holders[lock.Key.mark()] = lock
		}
	}
	for i := range all {
		lock := &all[i]
		if holder, ok := holders[lock.Key]; ok && lock.Shared {
			lock.Key, lock.Granted, lock.Shared, lock.BlockedBy = holder.Key, false, false, []int32{holder.PID}
		}
	}
}

func scanLock(row pgx.CollectableRow) (AdvisoryLock, error) {
	var lock AdvisoryLock
	var pair bool
	var upper, lower int64
	var waiting, connected *time.Time
	err := row.Scan(&pair, &upper, &lower, &lock.Shared, &lock.Granted, &waiting, &lock.PID, &lock.Application, &connected, &lock.BlockedBy)
	lock.Key = Key{bits: upper<<32 | lower, pair: pair}
	if waiting != nil {
		lock.Since = *waiting
	}
	if connected != nil {
		lock.Connected = *connected
	}
	return lock, err
}
