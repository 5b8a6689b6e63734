package pgstore

import (
	"context"
	"fmt"
)

// condition is what Warnings asks the server for.
const condition = `SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
       current_setting('synchronous_standby_names'), pg_is_in_recovery(),
       (SELECT relpersistence = 'u' FROM pg_class WHERE oid = to_regclass($1)),
       (SELECT count(*) FROM pg_index WHERE indrelid = to_regclass($1) AND NOT indisprimary),
       (SELECT count(*) FROM pg_stat_replication)`

// Warnings asks the server for settings under which it may forget locks, or
// which make them slow, and says each in a sentence, for people. None is an
// error: the locks work, with the risk that is told.
func (s *Store) Warnings(ctx context.Context) ([]string, error) {
	var fsync, pages, commit, standbys string
	var recovery bool
	var unlogged *bool
	var indexes, replicas int64
	if err := s.one(ctx, condition, []any{s.statement("@table@")},
		&fsync, &pages, &commit, &standbys, &recovery, &unlogged, &indexes, &replicas); err != nil {
		return nil, err
	}
	if s.options.SynchronousCommit != "" {
		commit = s.options.SynchronousCommit
	}
	var all []string
	add := func(when bool, format string, args ...any) {
		if when {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(recovery, "this server is a standby, and takes no locks: connect to the primary")
	add(fsync == "off" || pages == "off", "fsync or full_page_writes is off: a crash of the machine may destroy the table")
	add(commit == "off", "synchronous_commit is off: a crash of the server forgets locks that were just granted")
	add(value(unlogged), "the table is UNLOGGED: a crash of the server empties it: ALTER TABLE %s SET LOGGED", s.statement("@table@"))
	add(indexes > 0, "the table has an index beside its primary key: updates cost several times as much, and the table grows")
	add(replicas > 0 && standbys == "", "the standbys are asynchronous: a failover may forget locks that were just granted (synchronous_standby_names)")
	add(standbys != "" && commit == "local", "synchronous_commit is local: a failover may forget locks that were just granted")
	return all, nil
}
