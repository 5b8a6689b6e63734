package pgstore

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"fmt"
	"path"
	"strconv"
	"strings"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// A Migration is one step of the set-up of a table of locks.
type Migration struct {
	// Version counts from 1.
	Version int

	// Name says in a word what it does.
	Name string

	// Statements are its SQL, to be run in order and best in one transaction.
	// All of them may be run again.
	Statements []string
}

// Migrations returns all steps for a table, in order, for people and for other
// tools: [Store.Migrate] applies them. They note in a table beside that of the
// locks (distributed_locks_migrations) that they have been applied.
func Migrations(opts *Options) ([]Migration, error) {
	s := newStore(nil, opts)
	if err := s.options.check(); err != nil {
		return nil, err
	}
	entries, err := migrationFiles.ReadDir("migrations")
	if err != nil {
		return nil, err
	}
	var all []Migration
	for _, entry := range entries { // sorted by name
		text, err := migrationFiles.ReadFile(path.Join("migrations", entry.Name()))
		if err != nil {
			return nil, err
		}
		number, name, _ := strings.Cut(strings.TrimSuffix(entry.Name(), ".sql"), "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("migration %s: %w", entry.Name(), err)
		}
		m := Migration{Version: version, Name: name}
		for statement := range strings.SplitSeq(string(text), "\n--\n") {
			m.Statements = append(m.Statements, s.statement(strings.TrimSpace(statement)))
		}
		for _, text := range notes {
			m.Statements = append(m.Statements, s.statement(text))
		}
		m.Statements = append(m.Statements,
			s.statement(fmt.Sprintf("INSERT INTO @migrations@ (version) VALUES (%d) ON CONFLICT DO NOTHING", version)))
		all = append(all, m)
	}
	return all, nil
}

// notes make the table of what has been applied. Everybody may read it, so that
// those who may not migrate can see that they need not.
var notes = []string{
	"CREATE TABLE IF NOT EXISTS @migrations@ (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())",
	"GRANT SELECT ON @migrations@ TO PUBLIC",
}

// Migrate sets up the table and the functions, or brings them up to date, in
// one transaction. It may be called from many processes at once, each time they
// start: if there is nothing to do it does nothing. A table that was made by
// hand with the columns lock_name, holder_id, acquired_at, expires_at and
// metadata is taken over with the locks in it; functions named acquire_lock and
// release_lock that take the same arguments are replaced.
//
// The user must be allowed to create tables and functions in the schema, and
// the schema, if it is not there; others who use the locks need not.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	all, err := Migrations(&s.options)
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		err := s.pool.transact(ctx, func(tx statements) error { return s.migrate(ctx, tx, all) })
		if err == nil {
			return nil
		}
		if !s.again(err, true) || !pause(ctx, try) {
			return fmt.Errorf("migrate the table %s: %w", s.statement("@table@"), s.fault(ctx, err))
		}
	}
}

// migrate applies what is missing, one process after the other.
func (s *Store) migrate(ctx context.Context, tx statements, all []Migration) error {
	run := func(text string, args ...any) error {
		return tx.query(ctx, true, s.statement(text), args, func(scanner) error { return nil })
	}
	ask := func(answer any, text string, args ...any) error {
		return tx.query(ctx, true, s.statement(text), args, func(scan scanner) error { return scan(answer) })
	}
	if err := run("SELECT pg_advisory_xact_lock($1)", s.migrationKey()); err != nil {
		return err
	}
	var exists bool
	if err := ask(&exists, "SELECT to_regnamespace($1::text) IS NOT NULL", s.statement("@schema@")); err != nil {
		return err
	}
	if !exists {
		if err := run("CREATE SCHEMA @schema@"); err != nil {
			return err
		}
	}
	applied := 0
	if err := ask(&exists, "SELECT to_regclass($1::text) IS NOT NULL", s.statement("@migrations@")); err != nil {
		return err
	}
	if exists {
		if err := ask(&applied, "SELECT coalesce(max(version), 0) FROM @migrations@"); err != nil {
			return err
		}
	}
	for _, m := range all {
		if m.Version <= applied {
			continue
		}
		for _, statement := range m.Statements {
			if err := run(statement); err != nil {
				return fmt.Errorf("version %d: %w", m.Version, err)
			}
		}
	}
	return nil
}

// migrationKey is the advisory lock under which a table is migrated.
func (s *Store) migrationKey() int64 {
	sum := sha256.Sum256([]byte("migrate " + s.options.channel()))
	return int64(binary.BigEndian.Uint64(sum[:]))
}
