package pgstore

import (
	"context"
	_ "embed" // for the statements
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

var (
	//go:embed sql/check.sql
	checkText string

	//go:embed sql/tables.sql
	tablesText string

	//go:embed sql/functions.sql
	functionsText string
)

// edition is the version of the tables and functions. Each change of them increments it, so that
// Migrate brings the change. Programs of the edition before go on calling the functions: one that
// is called in another way, or means something else, gets another name or other arguments. Programs
// of the next edition log that the functions are old (see dialListener).
const edition = 9

// schema returns the name of the schema, and an error if it cannot be used. PostgreSQL truncates
// names of more than 63 bytes.
func (o *Options) schema() (string, error) {
	name := o.Schema
	if name == "" {
		name = DefaultSchema
	}
	if len(name) > 63 || strings.ContainsAny(name, "\x00@$") || strings.HasPrefix(name, "pg_") {
		return name, fmt.Errorf("%w: the name of the schema has more than 63 bytes, a NUL, an @ or a $ in it, or begins with pg_", driver.ErrInvalid)
	}
	return name, nil
}

// verbSQL is the language and the settings of the functions: a search_path in which nobody else has
// objects, a bound on the wait for a row that another transaction has locked, and plans that are
// made once, when the tables may be empty, and suit tables of any size. The bound is longer than a
// commit takes, and well below the default time of a request.
const verbSQL = `LANGUAGE plpgsql SET search_path = pg_catalog, @, pg_temp SET lock_timeout = '1s' SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan`

// Migrations returns the statements that [Store.Migrate] runs, for other tools. They are to be run
// in one transaction, in this order, and may be run again.
func Migrations(opts *Options) ([]string, error) {
	if opts == nil {
		opts = &Options{}
	}
	schema, err := opts.schema()
	if err != nil {
		return nil, err
	}
	all := []string{
		// One process migrates at a time.
		"SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(@schema_literal@, 1752132708))",
		// A statement that waits for a table holds up all later ones.
		"SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true), pg_catalog.set_config('lock_timeout', '2s', true)",
		// CREATE SCHEMA IF NOT EXISTS needs the right to create one, also if it exists.
		"DO $$ BEGIN IF pg_catalog.to_regnamespace(@schema_literal@) IS NULL THEN CREATE SCHEMA @; END IF; END $$",
		checkText,
		"SELECT pg_catalog.set_config('search_path', @schema_literal@ || ', pg_temp', true)",
	}
	all = append(all, strings.Split(tablesText, "\n--\n")...)
	all = append(all, strings.Split(functionsText, "\n--\n")...)
	all = append(all, fmt.Sprintf("CREATE OR REPLACE FUNCTION edition() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT %d'", edition))
	quoted := pgx.Identifier{schema}.Sanitize()
	fill := strings.NewReplacer("@verb@", strings.ReplaceAll(verbSQL, "@", quoted), "@schema_literal@", pgclient.QuoteLiteral(quoted), "@", quoted)
	for i, text := range all {
		all[i] = fill.Replace(text)
	}
	return all, nil
}

// sql fills the schema into a statement, for each @.
func (s *Store) sql(text string) string { return strings.ReplaceAll(text, "@", s.quoted) }

// Migrate makes the schema, its tables and its functions, in one transaction. Many processes may
// call it at once, each time they start: if there is nothing to do it changes nothing.
//
// Migrate refuses a schema in which everybody may create, one that belongs to a user that is not to
// be trusted, or that has objects of such a user, and tables with other columns than it makes, with
// a trigger or row security, or with another persistence. The
// error names the difference and what to do. Trusted are superusers, the owner of the database, the
// user of the store, and the roles that this user is a member of.
//
// Migrate waits two seconds at most for transactions that use the tables.
//
// The user must be allowed to create the schema if it does not exist, and be its owner otherwise.
// Other users of the locks need not be.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.checkUsable(ctx); err != nil {
		return err
	}
	statements, err := Migrations(&Options{Schema: s.schema})
	if err != nil {
		return err
	}
	err = s.run(ctx, s.pool.Acquire, func(c *pgx.Conn) error {
		return pgx.BeginTxFunc(ctx, c, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			const checked = 4 // the statements up to that of check.sql
			if _, err := tx.Exec(ctx, strings.Join(statements[:checked], ";\n"), pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
			// To drop a table drops the view with it.
			const query = `SELECT coalesce(max(substring(prosrc, '[0-9]+')::integer), 0) FROM pg_proc
				WHERE oid = to_regprocedure($1 || '.edition()') AND to_regclass($1 || '.entries') IS NOT NULL`
			var applied int
			switch err := tx.QueryRow(ctx, query, pgx.QueryExecModeExec, s.quoted).Scan(&applied); {
			case err != nil || applied == edition:
				return err
			case applied > edition:
				return fmt.Errorf("%w: the tables are those of edition %d, and this program knows %d: use a later version of it, or another schema",
					driver.ErrInvalid, applied, edition)
			}
			_, err := tx.Exec(ctx, strings.Join(statements[checked:], ";\n"), pgx.QueryExecModeSimpleProtocol)
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("migrate the schema %s: %w", s.quoted, err)
	}
	return nil
}
