package pgstore

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// PostgreSQL cuts longer identifiers off. A table leaves room for the names of
// functions behind its own.
const (
	maxIdentifier = 63
	maxTable      = 40
)

// record is what describes a hold, as a part of a SELECT from the table t. Rows
// that were written by hand may hold any time and any JSON. The order is that of
// recordRow.
const record = `CASE WHEN t.granted_at = t.acquired_at THEN t.token ELSE 0 END,
       CASE WHEN t.holder_id = '' THEN '' WHEN t.granted_at = t.acquired_at THEN coalesce(t.holder, t.holder_id) ELSE t.holder_id END,
       (extract(epoch FROM least(greatest(t.acquired_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00')) * 1000000)::bigint,
       (extract(epoch FROM least(greatest(t.expires_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00')) * 1000000)::bigint,
       (extract(epoch FROM least(greatest(t.expires_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00') - clock_timestamp()) * 1000000)::bigint,
       t.holder_id = '',
       CASE WHEN pg_column_size(t.metadata) <= 8192 THEN coalesce(t.metadata::text, '') ELSE '' END`

// past is the expiry of a lock that is free: no step of the clock makes it held.
const past = `'1970-01-01 00:00:00+00'`

// functions are the names of the functions that the migrations make.
var functions = []string{
	"holdfast_commit", "holdfast_acquire", "holdfast_renew", "holdfast_release", "holdfast_break", "holdfast_await",
	"sweep_locks", "acquire_lock_token", "acquire_lock", "extend_lock", "release_lock",
}

// names replaces the placeholders of statements.
func (o *Options) names() *strings.Replacer {
	prefix := ""
	if o.Table != DefaultTable {
		prefix = o.Table + "_"
	}
	pairs := []string{
		"@table@", pgx.Identifier{o.Schema, o.Table}.Sanitize(),
		"@migrations@", pgx.Identifier{o.Schema, o.Table + "_migrations"}.Sanitize(),
		"@schema@", pgx.Identifier{o.Schema}.Sanitize(),
		"@record@", record,
		"@past@", past,
	}
	for _, name := range functions {
		pairs = append(pairs, "@"+name+"@", pgx.Identifier{o.Schema, prefix + name}.Sanitize())
	}
	return strings.NewReplacer(pairs...)
}

// statement fills in the placeholders of a statement.
func (s *Store) statement(text string) string { return s.names.Replace(text) }

// channel is the name under which releases are told. It is of this table alone.
func (o *Options) channel() string {
	sum := sha256.Sum256([]byte(pgx.Identifier{o.Schema, o.Table}.Sanitize()))
	return fmt.Sprintf("holdfast_%x", sum[:8])
}

// texts are the statements of the verbs.
type texts struct {
	acquire, renew, release, breakName, lookup, list, await, sweep string
	fastTake, fastLook, fastRelease, releaseMany                   string
}

func (s *Store) texts() texts {
	const held = "held_token, held_by, held_since, held_until, held_left, held_kept, held_metadata"
	return texts{
		acquire:   s.statement("SELECT granted, is_new, " + held + " FROM @holdfast_acquire@($1, $2, $3, $4, $5, $6::text::jsonb, $7, $8)"),
		renew:     s.statement("SELECT @holdfast_renew@($1::text::text[], $2::text::text[], $3::text::bigint[], $4, $5)"),
		release:   s.statement("SELECT ended, awaited FROM @holdfast_release@($1, $2, $3, $4)"),
		breakName: s.statement("SELECT ended, awaited, " + held + " FROM @holdfast_break@($1, $2)"),
		lookup:    s.statement("SELECT @record@ FROM @table@ AS t WHERE t.lock_name = $1 AND t.expires_at > clock_timestamp()"),
		list: s.statement("SELECT t.lock_name, @record@ FROM @table@ AS t WHERE t.lock_name > $1 AND starts_with(t.lock_name, $2)" +
			" AND t.expires_at > clock_timestamp() ORDER BY t.lock_name LIMIT $3"),
		await: s.statement("SELECT @holdfast_await@($1::text::text[], $2)"),
		sweep: s.statement("SELECT @sweep_locks@()"),

		fastTake:    s.statement(fastTake),
		fastLook:    s.statement(fastLook),
		fastRelease: s.statement(fastRelease),
		releaseMany: s.statement(releaseMany),
	}
}
