package pgstore

import (
	"context"
	"crypto/sha256"
	_ "embed" // for the statements
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// The set-up, and the checks before and after it, since other users may have made objects before.
// Migrate runs them even if there is nothing to set up.
var (
	//go:embed sql/migration.sql
	migrationText string

	//go:embed sql/check_owners.sql
	checkOwners string

	//go:embed sql/check_table.sql
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
// [Store.Migrate] applies them. They record in a table beside that of the locks
// (distributed_locks_migrations) that they have been applied.
func Migrations(opts *Options) ([]Migration, error) {
	s := newEngine(nil, opts)
	if err := s.options.setDefaults(); err != nil {
		return nil, err
	}
	texts := []string{checkOwners}
	texts = append(texts, strings.Split(strings.ReplaceAll(migrationText, "@check_table@", checkTable), "\n--\n")...)
	texts = append(texts,
		// Everybody may read it, so that users that may not migrate can see that they need not.
		"CREATE TABLE IF NOT EXISTS @migrations@ (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())",
		checkOwners,
		"GRANT SELECT ON @migrations@ TO PUBLIC",
		fmt.Sprintf("INSERT INTO @migrations@ (version) VALUES (%d) ON CONFLICT DO NOTHING", version))
	for i, text := range texts {
		texts[i] = s.expandSQL(strings.TrimSpace(text))
	}
	return []Migration{{Version: version, Name: "locks", Statements: texts}}, nil
}

// version is that of the table and its functions.
const version = 1

func (s *engine) Migrate(ctx context.Context) error {
	if err := s.checkUsable(ctx); err != nil {
		return err
	}
	all, err := Migrations(&s.options)
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		err := transact(ctx, s.pool, func(tx conn) error { return s.migrate(ctx, tx, all) })
		if err == nil {
			return nil
		}
		if !s.isRetryable(err, true) || !pgclient.PauseBeforeRetry(ctx, try) {
			return fmt.Errorf("migrate the table %s: %w", s.expandSQL("@table@"), s.migrateErr(ctx, err))
		}
	}
}

// migrateErr is wrapErr for a migration, which needs rights of its own.
func (s *engine) migrateErr(ctx context.Context, err error) error {
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

// migrate applies what is missing, in one process at a time.
func (s *engine) migrate(ctx context.Context, tx conn, all []Migration) error {
	run := func(text string, args ...any) error {
		return tx.query(ctx, true, s.expandSQL(text), args, func(scanner) error { return nil })
	}
	queryValue := func(result any, text string, args ...any) error {
		return tx.query(ctx, true, s.expandSQL(text), args, func(scan scanner) error { return scan(result) })
	}
	for _, text := range []string{
		"SELECT pg_catalog.set_config('search_path'::text, 'pg_catalog, pg_temp'::text, true)",
		fmt.Sprintf("SELECT pg_advisory_xact_lock('%d'::bigint)", s.migrationKey()),
		// Before anything that belongs to other users is read. The set-up checks again, and trusts
		// fewer.
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
	switch {
	case applied > version:
		return fmt.Errorf("%w: the version %d of the table was made by a development version, or a later one; this one has version %d: "+
			"drop the tables and their functions, or make others, by Options.Table or the parameter table of the URL", driver.ErrInvalid, applied, version)
	case applied == version:
		return run(strings.TrimSpace(checkTable))
	}
	for _, statement := range all[0].Statements {
		if err := run(statement); err != nil {
			return err
		}
	}
	return nil
}

// migrationKey is the key of the advisory lock under which a table is migrated.
func (s *engine) migrationKey() int64 {
	table := sha256.Sum256([]byte(pgx.Identifier{s.options.Schema, s.options.Table}.Sanitize()))
	sum := sha256.Sum256(fmt.Appendf(nil, "migrate holdfast_%x", table[:8]))
	return int64(binary.BigEndian.Uint64(sum[:]))
}
