//go:build unix

package pgstore

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// grantShare takes a lock that must tolerate it.
func grantShare(t *testing.T, s *engine, name string, limit int) olddriver.AcquireRequest {
	t.Helper()
	req := pgtest.Request(name, time.Minute)
	req.Limit = limit
	if res, err := s.Acquire(t.Context(), req); err != nil || !res.Granted {
		t.Fatalf("Acquire of %q with Limit %d: %+v, %v, want it granted", name, limit, res, err)
	}
	return req
}

// Programs in other languages hold locks together with each other and with this package.
func TestSharesInSQL(t *testing.T) {
	t.Parallel()
	s := open(t)
	slot := func(name, holder string, limit int) (token int64) {
		var got *int64
		query(t, s, "SELECT @acquire_slot@($1, $2, 30, '{\"job\": \"import\"}', $3)", []any{name, holder, limit}, &got)
		return valueOrZero(got)
	}
	ok := func(text string, args ...any) (done bool) {
		query(t, s, "SELECT "+text, args, &done)
		return done
	}
	reader := grantShare(t, s, "config", olddriver.Shared)
	token := slot("config", "python-1", -1)
	if token == 0 || slot("config", "python-1", -1) != token || slot("config", "python-2", 0) != 0 || ok("@acquire_lock@('config', 'python-2')") {
		t.Error("readers do not hold a lock together, or a writer beside them")
	}
	rec, held, err := s.Lookup(t.Context(), "config")
	if err != nil || !held || len(rec.Others) != 1 || rec.Others[0].Holder != "python-1" || rec.Others[0].Token != token || rec.Others[0].Metadata["job"] != "import" {
		t.Errorf("Lookup: %+v, %v", rec, err)
	}
	if !ok("@extend_lock@('config', 'python-1', 60)") || ok("@extend_lock@('config', 'python-2', 60)") || ok("@release_lock@('config', 'python-2')") {
		t.Error("extend_lock or release_lock mistake one holder for another")
	}
	release(t, s, reader)
	if !ok("@release_lock@('config', 'python-1')") || ok("@release_lock@('config', 'python-1')") || !ok("@acquire_lock@('config', 'python-2')") {
		t.Error("a lock is not free after the last of its readers")
	}
	if slot("slots", "a", 2) == 0 || slot("slots", "b", 1) != 0 || slot("slots", "b", 2) == 0 || slot("slots", "c", 2) != 0 {
		t.Error("the limit is not that of the holders")
	}
	if slot("config", "python-3", -1) != 0 || !ok("@release_lock@('config', 'python-2')") {
		t.Error("a reader beside a writer")
	}
	token = slot("config", "python-1", -1)
	for _, others := range []bool{false, true} {
		if others {
			slot("config", "python-2", -1)
		}
		if ok("@acquire_lock@('config', 'python-1')") || slot("config", "python-1", 0) != 0 || slot("config", "python-1", 5) != 0 {
			t.Errorf("beside others %v, a reader has what it has as a writer or a slot", others)
		}
	}
	if slot("config", "python-1", -1) != token || slot("slots", "b", -1) != 0 || slot("slots", "a", 4) == 0 {
		t.Error("a share is not repeated under its own terms alone")
	}
	for _, bad := range []string{"'x', 'a', 30, '{}', -2", "'x', 'a', 30, '{}', NULL", "'x', 'a', 0, '{}', 2"} {
		if err := s.execQuery(t.Context(), s.expandSQL("SELECT @acquire_slot@("+bad+")")); err == nil {
			t.Errorf("acquire_slot(%s) succeeds", bad)
		}
	}
}

// A program that takes the row of an expired lock by a statement of its own, as one from before
// shares does, excludes those whose shares have ended.
func TestRowTakenByHandAfterShares(t *testing.T) {
	t.Parallel()
	s := open(t)
	reader := grantShare(t, s, "name", olddriver.Shared)
	change(t, s, "UPDATE @table@ SET expires_at = clock_timestamp() WHERE lock_name = 'name'") // A clock that was set forward and back.
	change(t, s, `UPDATE @table@ SET holder_id = 'by hand', acquired_at = clock_timestamp(), expires_at = clock_timestamp() + interval '1 minute'
		WHERE lock_name = 'name' AND expires_at <= clock_timestamp()`)
	if got := renew(t, s, reader)[0]; got != olddriver.RenewLost {
		t.Errorf("Renew of a share of the former lock: %v", got)
	}
	if release(t, s, reader) {
		t.Error("Release finds the share of the former lock")
	}
	if rec := refuse(t, s, "name"); rec.Holder != "by hand" || len(rec.Others) != 0 {
		t.Errorf("the lock is held by %+v", rec)
	}
	change(t, s, "UPDATE @table@ SET expires_at = clock_timestamp() WHERE lock_name = 'name'")
	grantShare(t, s, "name", 1)
	if rec, _, err := s.Lookup(t.Context(), "name"); err != nil || rec.Limit != 1 || len(rec.Others) != 0 {
		t.Errorf("Lookup: %+v, %v", rec, err)
	}
}

// A share that is over keeps its holder out no longer than others do, and shares that were ended by
// hand do not come back with the next one.
func TestSharesThatAreOver(t *testing.T) {
	t.Parallel()
	s := open(t)
	slot := func(holder string, ttl float64) (token int64) {
		var got *int64
		query(t, s, "SELECT @acquire_slot@('name'::text, $1::text, $2::double precision, '{}'::jsonb, 2)", []any{holder, ttl}, &got)
		return valueOrZero(got)
	}
	slot("stays", 60)
	first := slot("returns", 0.01)
	time.Sleep(15 * time.Millisecond)
	if again := slot("returns", 60); again <= first {
		t.Errorf("a holder that returns is granted %d after %d", again, first)
	}
	change(t, s, "UPDATE @table@ SET expires_at = clock_timestamp() WHERE lock_name = 'name'")
	grantShare(t, s, "name", 1)
	if rec, _, err := s.Lookup(t.Context(), "name"); err != nil || len(rec.Others) != 0 {
		t.Errorf("Lookup: %+v, %v, want one hold", rec, err)
	}
}

// Shares survive a crash of the server.
func TestSharesAfterACrash(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t)
	migrated(t, server.URL("postgres"), nil)
	s := newPoolEngine(pgtest.OpenPool(t, server.URL("postgres")), nil)
	defer s.Close()
	a, b := grantShare(t, s, "name", 3), grantShare(t, s, "name", 3)
	server.Restart()
	pgtest.Eventually(t, "the server is back", func() bool {
		_, _, err := s.Lookup(t.Context(), "name")
		return err == nil
	})
	refuse(t, s, "name")
	for _, outcome := range renew(t, s, a, b) {
		if outcome != olddriver.Renewed {
			t.Errorf("Renew after the crash: %v", outcome)
		}
	}
	if !release(t, s, a) || !release(t, s, b) {
		t.Error("a share was lost")
	}
	grant(t, s, "name", time.Minute)
}

// While another transaction has the row of the lock, it is not known what became of a share, nor of a
// place that has become one. A share is renewed under its own token alone.
func TestRenewOfSharesOfAnOpenRow(t *testing.T) {
	t.Parallel()
	s := open(t)
	writer := grant(t, s, "name", time.Minute)
	waiter := pgtest.Request("name", time.Minute)
	waiter.Limit, waiter.Queue = olddriver.Shared, time.Minute
	if res, err := s.Acquire(t.Context(), waiter); err != nil || !res.Queued {
		t.Fatalf("Acquire with Queue: %+v, %v, want it queued", res, err)
	}
	release(t, s, writer)
	reader := grantShare(t, s, "name", olddriver.Shared)
	rec, _, err := s.Lookup(t.Context(), "name")
	if err != nil || len(rec.Others) != 1 {
		t.Fatalf("Lookup: %+v, %v, want two readers", rec, err)
	}
	tx := leaveOpen(t, s, "SELECT FROM @table@ WHERE lock_name = 'name' FOR UPDATE")
	renewals := []olddriver.RenewRequest{
		{Name: "name", Owner: waiter.Owner, TTL: time.Minute},
		{Name: "name", Owner: reader.Owner, TTL: time.Minute, Token: rec.Others[0].Token},
	}
	for _, req := range renewals {
		if outcomes, err := s.Renew(t.Context(), []olddriver.RenewRequest{req}); err == nil || len(outcomes) > 0 && outcomes[0] != olddriver.RenewUnknown {
			t.Errorf("Renew under token %d while the row is open: %v, %v", req.Token, outcomes, err)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := renewals[1]
	other.Token = rec.Token
	outcomes, err := s.Renew(t.Context(), append(renewals, other))
	if want := []olddriver.RenewOutcome{olddriver.Renewed, olddriver.Renewed, olddriver.RenewLost}; err != nil || !slices.Equal(outcomes, want) {
		t.Errorf("Renew: %v, %v, want %v", outcomes, err, want)
	}
}

// Of a crowd of readers behind a writer its release admits a thousand, since more would take longer
// than a request may, and nobody overtakes the others.
func TestCrowdOfReaders(t *testing.T) {
	t.Parallel()
	s := open(t)
	writer := grant(t, s, "name", time.Minute)
	first, last := pgtest.Request("name", time.Minute), pgtest.Request("name", time.Minute)
	for _, req := range []*olddriver.AcquireRequest{&first, &last} {
		req.Limit, req.Queue = olddriver.Shared, time.Minute
		if res, err := s.Acquire(t.Context(), *req); err != nil || !res.Queued {
			t.Fatalf("Acquire with Queue: %+v, %v, want it queued", res, err)
		}
	}
	change(t, s, "UPDATE @waiters@ SET place = 5000 WHERE owner = $1", last.Owner)
	change(t, s, `INSERT INTO @waiters@ (lock_name, owner, place, until, floor, tokens, lim)
		SELECT 'name', 'reader ' || n, 1000 + n, clock_timestamp() + interval '1 minute', 0, 1, -1 FROM generate_series(1, 1500) AS n`)
	release(t, s, writer)
	count := func() (n int) {
		query(t, s, "SELECT count(*) FROM @shares@", nil, &n)
		return n
	}
	if got := count(); got != 1000 {
		t.Errorf("%d readers were admitted, want 1000", got)
	}
	claimed(t, s, first)
	if got := count(); got != 1502 {
		t.Errorf("after another request %d readers were admitted, want all", got)
	}
	claimed(t, s, last)
}
