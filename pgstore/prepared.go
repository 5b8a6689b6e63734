package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// The functions of the database do every verb in full. The statements here do the most common
// cases, of names without waiters, and change nothing in all others. They are sent directly and
// prepared, which costs the server much less. They must agree with holdfast_acquire and
// holdfast_release.
var (
	// acquireFreeSQL counts the hold from the moment at which the server received the statement.
	// That is after the holder began to count. The last condition bounds the wait for a row that
	// another transaction has locked.
	acquireFreeSQL = `UPDATE @table@ AS t
   SET holder_id = $2::text, holder = $3::text, metadata = $6::text::jsonb, kept_by = NULL,
       acquired_at = pg_catalog.statement_timestamp(), granted_at = pg_catalog.statement_timestamp(),
       expires_at = pg_catalog.statement_timestamp() + $4::bigint::double precision * '1 microsecond'::interval,
       ` + grantedTokens("$5::bigint", "$7::bigint") + `
 WHERE t.lock_name::text = $1::text AND t.expires_at <= pg_catalog.statement_timestamp() AND NOT t.has_waiters AND greatest(t.token, t.last_token) < 9007199254740991::bigint
   AND $5::bigint <= ` + statementMicros + ` + 86400000000::bigint
   AND pg_catalog.set_config('lock_timeout'::text, '@row_wait@'::text, true) <> ''::text
RETURNING t.token, t.last_token`

	selectHolderSQL = `SELECT t.holder_id::text = $2::text, @record@ FROM @table@ AS t
 WHERE t.lock_name::text = $1::text AND t.expires_at > pg_catalog.clock_timestamp()`

	// releaseOneSQL changes a setting, which is valid until the end of the transaction, and this
	// statement is one. It waits for a row that another transaction has locked until the caller
	// gives up: a bound here would cost every release.
	releaseOneSQL = `UPDATE @table@ AS t
   SET holder_id = '', holder = NULL, metadata = '{}', kept_by = NULL, acquired_at = pg_catalog.clock_timestamp(), expires_at = @past@
 WHERE t.lock_name::text = $1::text AND t.holder_id::text = $2::text AND t.expires_at > pg_catalog.clock_timestamp() AND NOT t.has_waiters
RETURNING pg_catalog.set_config('synchronous_commit'::text, 'off'::text, true)`

	// releaseBatchSQL does the same for many holds, and changes the setting only if no acquisition is
	// part of the transaction. It skips a row that is locked, and also one that is changed between
	// the two steps: that row is in another place then.
	releaseBatchSQL = `WITH mine AS (
    SELECT r.place, t.ctid AS at
      FROM unnest($1::text::text[], $2::text::text[]) WITH ORDINALITY AS r(name, owner, place), @table@ AS t
     WHERE t.lock_name::text = r.name AND t.holder_id::text = r.owner AND t.expires_at > pg_catalog.clock_timestamp() AND NOT t.has_waiters
       FOR NO KEY UPDATE OF t SKIP LOCKED)
UPDATE @table@ AS t
   SET holder_id = '', holder = NULL, metadata = '{}', kept_by = NULL, acquired_at = pg_catalog.clock_timestamp(), expires_at = @past@
  FROM mine WHERE t.ctid = mine.at
RETURNING mine.place,
          CASE WHEN $3::boolean THEN pg_catalog.set_config('synchronous_commit'::text, 'off'::text, true) ELSE ''::text END`

	// acquireBatchSQL acquires many names that are free and in the table, as acquireFreeSQL does. It
	// skips rows as releaseBatchSQL does. Of two requests for one name it grants one.
	acquireBatchSQL = `WITH mine AS (
    SELECT r.*, t.ctid AS at
      FROM unnest($1::text::text[], $2::text::text[], $3::text::text[], $4::text::bigint[], $5::text::bigint[], $6::text::text[], $7::text::bigint[])
           WITH ORDINALITY AS r(name, owner, holder, ttl, floor, metadata, tokens, place), @table@ AS t
     WHERE t.lock_name::text = r.name AND t.expires_at <= pg_catalog.statement_timestamp() AND NOT t.has_waiters AND greatest(t.token, t.last_token) < 9007199254740991::bigint
       AND r.floor <= ` + statementMicros + ` + 86400000000::bigint
       FOR NO KEY UPDATE OF t SKIP LOCKED)
UPDATE @table@ AS t
   SET holder_id = mine.owner, holder = mine.holder, metadata = mine.metadata::jsonb, kept_by = NULL,
       acquired_at = pg_catalog.statement_timestamp(), granted_at = pg_catalog.statement_timestamp(),
       expires_at = pg_catalog.statement_timestamp() + mine.ttl::double precision * '1 microsecond'::interval,
       ` + grantedTokens("mine.floor", "mine.tokens") + `
  FROM mine WHERE t.ctid = mine.at
RETURNING mine.place, t.token, t.last_token`
)

// statementMicros is the time of a statement in microseconds since 1970.
const statementMicros = `(extract(epoch FROM pg_catalog.statement_timestamp())::double precision * 1000000::double precision)::bigint`

// grantedTokens sets the tokens of a grant, given its floor and how many are requested.
func grantedTokens(floor, count string) string {
	token := `greatest(t.token + 1::bigint, t.last_token + 1::bigint, ` + statementMicros + `, ` + floor + `)`
	last := `(` + token + ` + ` + count + ` - 1::bigint)`
	limit := fmt.Sprintf(`least(greatest(%s, %s) + %d::bigint, %d::bigint)`,
		statementMicros, floor, olddriver.MaxTokensLead.Microseconds(), int64(driver.MaxToken))
	return `token = ` + token + `,
       last_token = CASE WHEN ` + count + ` > 1::bigint AND ` + last + ` <= ` + limit + `
            THEN ` + last + ` ELSE t.last_token END`
}

// tryPrepared makes the attempt that suits the last known state of the name, and reports whether
// its result is final. Behind a pooler it makes none: each statement would be planned anew.
func (s *engine) tryPrepared(
	ctx context.Context, req *olddriver.AcquireRequest, queue time.Duration, metadata string,
) (res olddriver.AcquireResult, decided bool, err error) {
	state := s.nameCache.lastState(req.Name)
	switch {
	case s.unprepared.Load() || req.Claim:
	case state == stateHeld && queue == 0:
		return s.selectHolder(ctx, req)
	case state == stateFree:
		return s.acquireFree(ctx, req, metadata)
	}
	return res, false, nil
}

// acquireFree acquires a name that is free and in the table, on its own or in a batch.
func (s *engine) acquireFree(ctx context.Context, req *olddriver.AcquireRequest, metadata string) (res olddriver.AcquireResult, decided bool, err error) {
	change := &rowChange{name: req.Name, owner: req.Owner, acquire: req, metadata: metadata}
	if err := s.makeChange(ctx, change); err != nil {
		return res, true, err
	}
	if !change.decided || change.err != nil {
		return res, change.decided, change.err
	}
	return olddriver.AcquireResult{Granted: true, Token: change.token, Tokens: change.tokens()}, true, nil
}

// selectHolder checks whether a name is held by another owner.
func (s *engine) selectHolder(ctx context.Context, req *olddriver.AcquireRequest) (res olddriver.AcquireResult, decided bool, err error) {
	own := false
	row := recordRow{}
	found, err := s.queryOptional(ctx, s.queries.selectHolder, []any{req.Name, req.Owner}, row.columns(&own)...)
	if err != nil || !found || own || valueOrZero(row.left) <= 0 {
		return res, false, err
	}
	res.Held = row.toRecord(req.Name)
	return res, true, nil
}
