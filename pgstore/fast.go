package pgstore

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// The functions of the database do every verb in full. The statements here do
// the most common cases, and change nothing in all others; sent as they are, and
// prepared, they cost the server much less. They must agree with
// holdfast_acquire and holdfast_release.
const (
	// A hold that is taken by this one is counted from the moment at which the
	// server got the statement. That is after the holder began to count.
	fastTake = `UPDATE @table@ AS t
   SET holder_id = $2, holder = $3, metadata = $6::text::jsonb, kept_by = NULL,
       acquired_at = statement_timestamp(), granted_at = statement_timestamp(),
       expires_at = statement_timestamp() + $4 * interval '1 microsecond',
       token = greatest(t.token + 1, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint, $5)
 WHERE t.lock_name = $1 AND t.expires_at <= statement_timestamp() AND t.token < 9007199254740991
RETURNING t.token`

	fastLook = `SELECT t.holder_id = $2, @record@ FROM @table@ AS t WHERE t.lock_name = $1 AND t.expires_at > clock_timestamp()`

	// A change of synchronous_commit is good until the end of the transaction,
	// and this statement is one.
	fastRelease = `UPDATE @table@ AS t
   SET holder_id = '', holder = NULL, metadata = '{}', kept_by = NULL, acquired_at = clock_timestamp(), expires_at = @past@
 WHERE t.lock_name = $1 AND t.holder_id = $2 AND t.expires_at > clock_timestamp()
RETURNING coalesce(t.awaited_until > clock_timestamp(), false), set_config('synchronous_commit', 'off', true)`

	// The same for many. A row that is locked is left out, and so is one that
	// is changed between the two steps: it is in another place then.
	releaseMany = `WITH mine AS (
    SELECT r.place, t.ctid AS at
      FROM unnest($1::text::text[], $2::text::text[]) WITH ORDINALITY AS r(name, owner, place), @table@ AS t
     WHERE t.lock_name = r.name AND t.holder_id = r.owner AND t.expires_at > clock_timestamp()
       FOR NO KEY UPDATE OF t SKIP LOCKED)
UPDATE @table@ AS t
   SET holder_id = '', holder = NULL, metadata = '{}', kept_by = NULL, acquired_at = clock_timestamp(), expires_at = @past@
  FROM mine WHERE t.ctid = mine.at
RETURNING mine.place, coalesce(t.awaited_until > clock_timestamp(), false), set_config('synchronous_commit', 'off', true)`
)

// tryFast makes the attempt that suits what was last seen of the name, and
// reports whether its answer is final. Behind a pooler it makes none: each
// statement would be planned anew.
func (s *Store) tryFast(ctx context.Context, req *driver.AcquireRequest, metadata string) (res driver.AcquireResult, final bool, err error) {
	belief := s.seen.of(req.Name)
	switch {
	case s.plain.Load():
	case belief == believedHeld:
		return s.look(ctx, req)
	case belief == believedFree && s.options.SynchronousCommit == "": // as it never is with RequireStandby
		return s.take(ctx, req, metadata)
	}
	return res, false, nil
}

// take takes a name that is free and in the table.
func (s *Store) take(ctx context.Context, req *driver.AcquireRequest, metadata string) (res driver.AcquireResult, final bool, err error) {
	args := []any{req.Name, req.Owner, req.Holder, micros(req.TTL), req.Floor, metadata}
	res.Granted, err = s.maybe(ctx, s.text.fastTake, args, &res.Token)
	return res, res.Granted, err
}

// look finds out that a name is held by another owner.
func (s *Store) look(ctx context.Context, req *driver.AcquireRequest) (res driver.AcquireResult, final bool, err error) {
	own := false
	row := recordRow{}
	found, err := s.maybe(ctx, s.text.fastLook, []any{req.Name, req.Owner}, row.columns(&own)...)
	if err != nil || !found || own || value(row.left) <= 0 {
		return res, false, err
	}
	res.Held = row.record(req.Name)
	return res, true, nil
}
