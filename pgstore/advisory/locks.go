package advisory

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// A Lock is an advisory lock of the database that a session of any program holds or waits
// for. A waiter for a lock in an Store is shown as the process that is to be notified of
// the release, and for a second longer.
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

// Lookup implements [olddriver.Store].
func (s *engine) Lookup(ctx context.Context, name string) (olddriver.Record, bool, error) {
	if err := s.checkUsable(ctx); err != nil {
		return olddriver.Record{}, false, err
	}
	key, err := s.keys(name)
	if err != nil {
		return olddriver.Record{}, false, err
	}
	records, own := s.ownRecords(key, name)
	if len(records) == 0 || records[0].Limit != 0 {
		others, err := s.readHolders(ctx, key, name, own)
		if err != nil {
			return olddriver.Record{}, false, err
		}
		records = append(records, others...)
	}
	if len(records) == 0 {
		return olddriver.Record{}, false, nil
	}
	rec := records[0]
	rec.Others = records[1:len(records):len(records)]
	if len(rec.Others) == 0 {
		rec.Others = nil
	}
	return rec, true, nil
}

// ownRecords returns the records of the store's holds of a name, and the processes of their
// sessions.
func (s *engine) ownRecords(key Key, name string) (records []olddriver.Record, sessions []int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.leases[key] {
		if l.state == leaseHeld && l.name == name && time.Now().Before(l.until) {
			records, sessions = append(records, l.publicRecord()), append(sessions, int32(l.session.pid))
		}
	}
	return records, sessions
}

// readHolders returns records of the sessions that have a key, other than those given.
func (s *engine) readHolders(ctx context.Context, key Key, name string, own []int32) (records []olddriver.Record, err error) {
	locks, err := s.readLocks(ctx)
	for _, lock := range locks {
		if lock.Key != key || !lock.Granted || slices.Contains(own, lock.PID) {
			continue
		}
		rec := olddriver.Record{Name: name, Holder: "a prepared transaction"}
		if lock.PID != 0 {
			rec.Holder = strings.TrimSpace(fmt.Sprintf("%s (PID %d)", lock.Application, lock.PID))
		}
		if lock.Shared {
			rec.Limit = olddriver.Shared
		}
		records = append(records, rec)
	}
	return records, err
}

func (s *engine) Locks(ctx context.Context) iter.Seq2[Lock, error] {
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

func (s *engine) readLocks(ctx context.Context) ([]Lock, error) {
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
	all = marksToWaiters(all)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range all {
		lock := &all[i]
		for _, l := range s.leases[lock.Key] {
			if l.state == leaseHeld && l.session.pid == uint32(lock.PID) {
				lock.Name, lock.Since = l.name, l.since.Round(0)
				break
			}
		}
	}
	return all, nil
}

// marksToWaiters turns the marks of locks that are held into waiters, and removes the gates of such
// locks.
func marksToWaiters(all []Lock) []Lock {
	type holders struct {
		key  Key
		pids []int32
	}
	marks, gates := map[Key]holders{}, map[Key]bool{}
	for _, lock := range all {
		if lock.Granted {
			mark := lock.Key.waiterKey()
			marks[mark] = holders{lock.Key, append(marks[mark].pids, lock.PID)}
			gates[lock.Key.gateKey()] = true
		}
	}
	for i := range all {
		lock := &all[i]
		if held, ok := marks[lock.Key]; ok && lock.Shared {
			lock.Key, lock.Granted, lock.Shared, lock.BlockedBy = held.key, false, false, held.pids
		}
	}
	return slices.DeleteFunc(all, func(lock Lock) bool { return gates[lock.Key] })
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
