package pgstore

import (
	"context"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// The functions of the database do every verb in full. The statements here do
// the most common cases of two of them, and say if it is another; sent as they
// are, and prepared, they cost the server a quarter less than a function. They
// must agree with holdfast_acquire and holdfast_release to the letter.
const (
	fastAcquire = `WITH u AS (
    UPDATE @table@ AS t
       SET holder_id = $2, holder = $3, metadata = $6::text::jsonb, kept_by = NULL,
           (acquired_at, granted_at, expires_at, token) =
           (SELECT c.now, c.now, c.now + $4 * interval '1 microsecond',
                   greatest(t.token + 1, (extract(epoch FROM c.now) * 1000000)::bigint, $5)
              FROM (SELECT clock_timestamp() AS now) AS c)
     WHERE t.lock_name = $1 AND t.expires_at <= clock_timestamp() AND t.token < 9007199254740991
    RETURNING t.token)
SELECT u.token, false, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::boolean, NULL::text FROM u
UNION ALL
SELECT 0, t.holder_id = $2, @record@ FROM @table@ AS t WHERE t.lock_name = $1 AND NOT EXISTS (SELECT FROM u)`

	fastRelease = `UPDATE @table@ AS t
   SET holder_id = '', holder = NULL, metadata = '{}', kept_by = NULL, acquired_at = clock_timestamp(), expires_at = @past@
 WHERE t.lock_name = $1 AND t.holder_id = $2 AND t.expires_at > clock_timestamp()
RETURNING coalesce(t.awaited_until > clock_timestamp(), false)`
)

// fast reports whether statements may be sent as they are: they say nothing of
// how they are committed, and are planned anew each time behind a pooler.
func (s *Store) fast() bool {
	return s.options.SynchronousCommit == "" && !s.options.RequireStandby && !s.plain.Load()
}

// tryFast makes an attempt to take a name that is in the table. It reports
// whether the answer is final: it is not if the row has gone since, or is the
// owner's own, or is just running out, or has a token that is out of bounds.
func (s *Store) tryFast(ctx context.Context, req *driver.AcquireRequest, metadata string) (res driver.AcquireResult, final bool, err error) {
	own := false
	row := recordRow{}
	args := []any{req.Name, req.Owner, req.Holder, micros(req.TTL), req.Floor, metadata}
	found, err := s.maybe(ctx, s.text.fastAcquire, args, row.columns(&res.Token, &own)...)
	switch {
	case !found:
		return driver.AcquireResult{}, false, err
	case res.Token > 0:
		res.Granted = true
		return res, true, nil
	case own || value(row.left) <= 0:
		return res, false, nil
	}
	res.Held = row.record(req.Name)
	return res, true, nil
}

// releaseFast ends a hold.
func (s *Store) releaseFast(ctx context.Context, name, owner string) (ended, awaited bool, err error) {
	ended, err = s.maybe(ctx, s.text.fastRelease, []any{name, owner}, &awaited)
	return ended, awaited, err
}

// A memory has names that were in the table when they were last seen.
type memory struct {
	mu    sync.Mutex
	names map[string]struct{}
}

// maxMemory bounds the memory: then it begins anew.
const maxMemory = 10000

func (m *memory) has(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.names[name]
	return ok
}

func (m *memory) add(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names == nil || len(m.names) >= maxMemory {
		m.names = map[string]struct{}{}
	}
	m.names[name] = struct{}{}
}
