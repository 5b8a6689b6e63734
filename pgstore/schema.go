package pgstore

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// PostgreSQL truncates longer identifiers. The name of a table leaves room for the names of
// functions behind its own.
const (
	maxIdentifier = 63
	maxTable      = 40
)

// recordColumns describes a hold, as a part of a SELECT from the table t. Rows that were written by
// hand may hold any time and any JSON. The order is that of recordRow.
//
// Here and in every other statement that is not part of a function, functions and the types of
// their arguments are spelled out, and operators stand between types for which PostgreSQL itself
// has one: then an operator or an overload that another user has made in a schema of the
// search_path is no better match.
var recordColumns = `CASE WHEN t.granted_at = t.acquired_at THEN t.token ELSE 0::bigint END,
       CASE WHEN t.holder_id::text = ''::text THEN ''::text WHEN t.granted_at = t.acquired_at THEN coalesce(t.holder::text, t.holder_id::text)
            ELSE t.holder_id::text END,
       ` + pgclient.Microseconds(boundedTime("t.acquired_at")) + `,
       ` + pgclient.Microseconds(boundedTime("t.expires_at")) + `,
       ` + pgclient.Microseconds(boundedTime("t.expires_at")+" - pg_catalog.clock_timestamp()") + `,
       t.holder_id::text = ''::text,
       CASE WHEN pg_catalog.pg_column_size(t.metadata) <= 8192 THEN coalesce(t.metadata::text, ''::text) ELSE ''::text END`

// boundedTime limits a time to one that every client can read.
func boundedTime(column string) string {
	return "least(greatest(" + column + ", '0001-01-01 00:00:00+00'::timestamptz), '9999-12-31 00:00:00+00'::timestamptz)"
}

// pastExpiry is the expiry of a lock that is free: no step of the clock makes it held.
const pastExpiry = `'1970-01-01 00:00:00+00'::timestamptz`

// rowWait is how long a change waits for a row that another transaction has locked: longer than a
// commit takes, and well below the default time of a request.
const rowWait = "1s"

// signatures are the types of the parameters of the functions that the migrations make, by name.
var signatures = map[string][]string{
	"holdfast_tokens":      {"bigint, bigint, bigint, bigint, timestamptz"},
	"holdfast_settle":      {"text, text"},
	"holdfast_notify":      {"text[]"},
	"holdfast_waiting":     {"text"},
	"holdfast_acquire":     {"text, text, text, bigint, bigint, bigint, jsonb, bigint, boolean, text, bigint"},
	"holdfast_renew":       {"text[], text[], bigint[], bigint[]"},
	"holdfast_refresh":     {"text[], text[], bigint[]"},
	"holdfast_release":     {"text, text, bigint, boolean"},
	"holdfast_break":       {"text, bigint"},
	"holdfast_admits":      {"text, text, bigint, timestamptz"},
	"holdfast_has_share":   {"text, text, bigint"},
	"holdfast_renew_share": {"text, text, timestamptz, bigint"},
	"holdfast_shares":      {"text, bigint"},
	"holdfast_shares_json": {"text"},
	"sweep_locks":          {""},
	"acquire_lock_token":   {"text, text", "text, text, integer", "text, text, double precision", "text, text, integer, jsonb", "text, text, double precision, jsonb"},
	"acquire_lock":         {"text, text", "text, text, integer", "text, text, double precision", "text, text, integer, jsonb", "text, text, double precision, jsonb"},
	"acquire_slot":         {"text, text, double precision, jsonb, integer"},
	"extend_lock":          {"text, text", "text, text, integer", "text, text, double precision"},
	"release_lock":         {"text, text"},
}

// functionPrefix is the prefix of the names of the functions.
func (o *Options) functionPrefix() string {
	if o.Table == DefaultTable {
		return ""
	}
	return o.Table + "_"
}

// placeholders replaces the placeholders of statements.
func (o *Options) placeholders() *strings.Replacer {
	pairs := []string{
		"@table@", pgx.Identifier{o.Schema, o.Table}.Sanitize(),
		"@migrations@", pgx.Identifier{o.Schema, o.Table + "_migrations"}.Sanitize(),
		"@waiters@", pgx.Identifier{o.Schema, o.Table + "_waiters"}.Sanitize(),
		"@shares@", pgx.Identifier{o.Schema, o.Table + "_shares"}.Sanitize(),
		"@shares_literal@", pgclient.QuoteLiteral(pgx.Identifier{o.Schema, o.Table + "_shares"}.Sanitize()),
		"@shares_index@", pgx.Identifier{o.Table + "_shares_end"}.Sanitize(),
		"@shares_notify_index@", pgx.Identifier{o.Table + "_shares_notify"}.Sanitize(),
		"@waiters_index@", pgx.Identifier{o.Table + "_waiters_place"}.Sanitize(),
		"@waiters_literal@", pgclient.QuoteLiteral(pgx.Identifier{o.Schema, o.Table + "_waiters"}.Sanitize()),
		"@schema@", pgx.Identifier{o.Schema}.Sanitize(),
		"@schema_literal@", pgclient.QuoteLiteral(pgx.Identifier{o.Schema}.Sanitize()),
		"@table_literal@", pgclient.QuoteLiteral(pgx.Identifier{o.Schema, o.Table}.Sanitize()),
		"@table_name@", pgclient.QuoteLiteral(o.Table),
		"@record@", recordColumns,
		"@past@", pastExpiry,
		"@trusted@", pgclient.TrustedRoles,
		"@tokens_lead@", strconv.FormatInt(olddriver.MaxTokensLead.Microseconds(), 10),
		"@row_wait@", rowWait,
	}
	var ours []string
	for _, name := range slices.Sorted(maps.Keys(signatures)) {
		quoted := pgx.Identifier{o.Schema, o.functionPrefix() + name}.Sanitize()
		pairs = append(pairs, "@"+name+"@", quoted)
		for _, types := range signatures[name] {
			ours = append(ours, "to_regprocedure("+pgclient.QuoteLiteral(quoted+"("+types+")")+"::text)::oid")
		}
	}
	pairs = append(pairs, "@signatures@", strings.Join(ours, ", "), "@settled@", "false")
	return strings.NewReplacer(pairs...)
}

// expandSQL fills in the placeholders of a statement.
func (s *engine) expandSQL(text string) string { return s.placeholders.Replace(text) }

// waitingSQL counts the places of a lock in the table t.
const waitingSQL = `CASE WHEN t.has_waiters THEN @holdfast_waiting@(t.lock_name::text) ELSE 0::bigint END`

// sharesSQL describes the holds of a lock in the table t if several can hold it.
const sharesSQL = `CASE WHEN t.holder_id::text = ''::text AND t.kept_by::text = ''::text THEN @holdfast_shares_json@(t.lock_name::text) END`

// notifySQL notifies the waiters for names. It comes after the commit of the change, and does not
// wait for the disk.
const notifySQL = `SELECT pg_catalog.set_config('synchronous_commit'::text, 'off'::text, true), @holdfast_notify@($1::text::text[])::text`

// queries are the statements of the verbs.
type queries struct {
	acquire, renew, refresh, release, breakName, lookup, list, notify, sweep string
	acquireFree, acquireBatch, selectHolder                                  string
	releaseOne, releaseBatch                                                 string
}

func (s *engine) buildQueries() queries {
	return queries{
		acquire: s.expandSQL("SELECT granted, tokens, is_new, queued, is_first, waiters, notify, held_limit, coalesce(held_waiting, 0::bigint)," +
			" held_token, held_by, held_since, held_until, held_left, held_kept, held_metadata" +
			" FROM @holdfast_acquire@($1::text, $2::text, $3::text, $4::bigint, $5::bigint, $6::bigint, $7::text::jsonb," +
			" $8::bigint, $9::boolean, $10::text, $11::bigint)"),
		renew:   s.expandSQL("SELECT @holdfast_renew@($1::text::text[], $2::text::text[], $3::text::bigint[], $4::text::bigint[])"),
		refresh: s.expandSQL("SELECT @holdfast_refresh@($1::text::text[], $2::text::text[], $3::text::bigint[])"),
		release: s.expandSQL("SELECT ended, waiters, notify" +
			" FROM @holdfast_release@($1::text, $2::text, $3::bigint, $3::bigint > 0::bigint)"),
		breakName: s.expandSQL("SELECT token, holder, since, until, left_over, is_kept, metadata, lim FROM @holdfast_break@($1::text, $2::bigint)"),
		lookup: s.expandSQL("SELECT " + waitingSQL + ", " + sharesSQL + ", @record@ FROM @table@ AS t" +
			" WHERE t.lock_name::text = $1::text AND t.expires_at > pg_catalog.clock_timestamp()"),
		list: s.expandSQL("SELECT t.lock_name::text, " + waitingSQL + ", " + sharesSQL + ", @record@ FROM @table@ AS t" +
			" WHERE t.lock_name::text > $1::text AND pg_catalog.starts_with(t.lock_name::text, $2::text)" +
			" AND t.expires_at > pg_catalog.clock_timestamp() ORDER BY t.lock_name LIMIT $3::bigint"),
		notify: s.expandSQL(notifySQL),
		sweep:  s.expandSQL("SELECT @sweep_locks@()"),

		acquireFree:  s.expandSQL(acquireFreeSQL),
		acquireBatch: s.expandSQL(acquireBatchSQL),
		selectHolder: s.expandSQL(selectHolderSQL),
		releaseOne:   s.expandSQL(releaseOneSQL),
		releaseBatch: s.expandSQL(releaseBatchSQL),
	}
}
