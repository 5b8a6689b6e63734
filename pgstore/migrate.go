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

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// The checks at the begin or end of every step, since other users may have made objects before.
// Migrate runs them even if there is no step to apply.
var (
	//go:embed checks/owners.sql
	checkOwners string

	//go:embed checks/table.sql
	checkTable string
)

// A Migration is one step of the set-up of a table of locks.
type Migration struct {
	// Version counts from 1.
	Version int

	// Name says in a word what it does.
	Name string

	// Statements are its SQL, to be run in order and best in one transaction. All of them may be
	// run again.
	Statements []string
}

// Migrations returns all steps for a table, in order, for people and for other tools:
// [Store.Migrate] applies them. A step that a later one replaces in full is left out. They record
// in a table beside that of the locks (distributed_locks_migrations) that they have been applied.
func Migrations(opts *Options) ([]Migration, error) {
	s := newStore(nil, opts)
	if err := s.options.setDefaults(); err != nil {
		return nil, err
	}
	entries, err := migrationFiles.ReadDir("migrations")
	if err != nil {
		return nil, err
	}
	var all []Migration
	for i, entry := range entries { // sorted by name
		text, err := migrationFiles.ReadFile(path.Join("migrations", entry.Name()))
		if err != nil {
			return nil, err
		}
		number, name, _ := strings.Cut(strings.TrimSuffix(entry.Name(), ".sql"), "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("migration %s: %w", entry.Name(), err)
		}
		m := Migration{Version: version, Name: name, Statements: []string{s.expandSQL(strings.TrimSpace(checkOwners))}}
		for statement := range strings.SplitSeq(string(text), "\n--\n") {
			m.Statements = append(m.Statements, s.expandSQL(strings.TrimSpace(statement)))
		}
		if i == len(entries)-1 {
			m.Statements = append(m.Statements, s.expandSQL(strings.TrimSpace(checkTable)))
		}
		for _, text := range []string{
			// Everybody may read it, so that users that may not migrate can see that they need not.
			"CREATE TABLE IF NOT EXISTS @migrations@ (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())",
			checkOwners,
			"GRANT SELECT ON @migrations@ TO PUBLIC",
			fmt.Sprintf("INSERT INTO @migrations@ (version) VALUES (%d) ON CONFLICT DO NOTHING", version),
		} {
			m.Statements = append(m.Statements, s.expandSQL(strings.TrimSpace(text)))
		}
		all = append(all, m)
	}
	return all, nil
}

// Migrate sets up the table and the functions, or brings them up to date, in one transaction. Many
// processes may call it at once, each time they start: if there is nothing to do it does nothing. A
// table that was made by hand with the columns lock_name, holder_id, acquired_at, expires_at and
// metadata is taken over with the locks in it; functions named acquire_lock and release_lock that
// take the same arguments are replaced.
//
// Migrate checks such a table each time, column by column and index by index. It mends what would
// keep the table from excluding if that loses nothing (a unique index on lock_name alone, types of
// text, columns that may be null). Otherwise it refuses the table (a time without a zone, two rows
// of one name, triggers, rules, row security, inheritance, constraints). The error names the
// statement that mends it. Tables and functions must belong to the user, the owner of the schema or
// of the database, or a superuser. Others are refused, since they could run code with the rights of
// all users that lock: migrate as their owner. If there is nothing to do, those of a migration role
// are accepted, provided that the schema is not one in which everybody may create, or that role was
// granted CREATE by name. Package doctor names the users that may create in the schema,
// and functions of others that have the names of this package's with other parameters.
//
// The user must be allowed to create tables and functions in the schema, and the schema, if it does
// not exist. Other users of the locks need not be.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.checkUsable(ctx); err != nil {
		return err
	}
	all, err := Migrations(&s.options)
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		err := s.pool.transact(ctx, func(tx conn) error { return s.migrate(ctx, tx, all) })
		if err == nil {
			return nil
		}
		if !s.isRetryable(err, true) || !pgclient.PauseBeforeRetry(ctx, try) {
			return fmt.Errorf("migrate the table %s: %w", s.expandSQL("@table@"), s.migrateErr(ctx, err))
		}
	}
}

// migrateErr is wrapErr for a migration, which needs rights of its own.
func (s *Store) migrateErr(ctx context.Context, err error) error {
	const insufficientPrivilege = "42501"
	if pgclient.SQLState(err) != insufficientPrivilege {
		return s.wrapErr(ctx, err)
	}
	text := pgclient.InOneLine(err)
	switch {
	case strings.Contains(err.Error(), "for database"):
		text = fmt.Errorf("%w: the user needs CREATE on the database, or a schema of its own: CREATE SCHEMA %s AUTHORIZATION %s", text, s.expandSQL("@schema@"), s.quotedUser(ctx))
	case strings.Contains(err.Error(), "for schema"):
		text = fmt.Errorf("%w: migrate once as the owner of the schema %s; or use another (schema=locks), after CREATE SCHEMA locks AUTHORIZATION %s",
			text, s.expandSQL("@schema@"), s.quotedUser(ctx))
	default:
		text = fmt.Errorf("%w: migrate as the owner of the table and its functions", text)
	}
	return driver.NotApplied(text)
}

// migrate applies the missing steps, in one process at a time.
func (s *Store) migrate(ctx context.Context, tx conn, all []Migration) error {
	run := func(text string, args ...any) error {
		return tx.query(ctx, true, s.expandSQL(text), args, func(scanner) error { return nil })
	}
	queryValue := func(result any, text string, args ...any) error {
		return tx.query(ctx, true, s.expandSQL(text), args, func(scan scanner) error { return scan(result) })
	}
	for _, text := range []string{
		"SELECT pg_catalog.set_config('search_path'::text, 'pg_catalog, pg_temp'::text, true)",
		fmt.Sprintf("SELECT pg_advisory_xact_lock('%d'::bigint)", s.migrationKey()),
		// Before anything that belongs to other users is read. Each step that is applied checks
		// again, and trusts fewer.
		strings.TrimSpace(strings.ReplaceAll(checkOwners, "@settled@", "true")),
		"SELECT pg_catalog.set_config('row_security'::text, 'off'::text, true)", // policies are functions, too
	} {
		if err := run(text); err != nil {
			return err
		}
	}
	var exists bool
	if err := queryValue(&exists, "SELECT to_regnamespace($1::text) IS NOT NULL", s.expandSQL("@schema@")); err != nil {
		return err
	}
	if !exists {
		if err := run("CREATE SCHEMA @schema@"); err != nil {
			return err
		}
	}
	applied := 0
	if err := queryValue(&exists, "SELECT to_regclass($1::text) IS NOT NULL", s.expandSQL("@migrations@")); err != nil {
		return err
	}
	if exists {
		if err := queryValue(&applied, "SELECT coalesce(max(version), 0) FROM ONLY @migrations@"); err != nil {
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
	if applied < all[len(all)-1].Version {
		return nil
	}
	return run(strings.TrimSpace(checkTable))
}

// migrationKey is the key of the advisory lock under which a table is migrated.
func (s *Store) migrationKey() int64 {
	table := sha256.Sum256([]byte(pgx.Identifier{s.options.Schema, s.options.Table}.Sanitize()))
	sum := sha256.Sum256(fmt.Appendf(nil, "migrate holdfast_%x", table[:8]))
	return int64(binary.BigEndian.Uint64(sum[:]))
}
