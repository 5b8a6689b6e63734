//go:build unix

package pgstore

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// Break waits for a transaction that gives the name to another holder, and compares the token after
// that.
func TestBreakTokenAfterWait(t *testing.T) {
	t.Parallel()
	url := openDatabase(t, "broken_by_token")
	s, breaker := openAt(t, url), openAt(t, url)
	_, token := grantToken(t, s, "name", time.Minute)
	tx := leaveOpen(t, s, "UPDATE @table@ SET holder_id = 'next', token = token + 1 WHERE lock_name = $1", "name")
	broken := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), pgtest.Bound)
	defer cancel()
	go func() {
		rec, found, err := breaker.Break(ctx, olddriver.BreakRequest{Name: "name", Token: token})
		if found || rec.Name != "" {
			t.Errorf("Break: %+v, %v, %v, want nothing broken", rec, found, err)
		}
		broken <- err
	}()
	pgtest.Eventually(t, "Break that waits for the row", func() bool {
		waits := false
		query(t, s, "SELECT EXISTS (SELECT FROM pg_locks JOIN pg_stat_activity USING (pid)"+
			" WHERE NOT granted AND datname = current_database())", nil, &waits)
		return waits
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-broken; err != nil {
		t.Error(err)
	}
	if rec := refuse(t, s, "name"); rec.Token != token+1 {
		t.Errorf("after Break: %+v, want the next hold", rec)
	}
	if _, found, err := breaker.Break(t.Context(), olddriver.BreakRequest{Name: "name", Token: token + 1}); err != nil || !found {
		t.Errorf("Break with the token: %v, %v", found, err)
	}
}
