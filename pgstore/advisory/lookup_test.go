//go:build unix

package advisory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// Lookup reports whether a name is held, and by which session, of whatever program
// and kind of key.
func TestLookup(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	for what, opts := range map[string]*Options{
		"bigint": keysOf(t),
		"pair":   {Keys: func(name string) (Key, error) { return Key2x32(-7, int32(len(t.Name()+name))), nil }},
		"least":  {Keys: func(name string) (Key, error) { return Key64(-1<<63 + int64(len(name))), nil }},
	} {
		s, other := open(t, server.Addr, opts), open(t, server.Addr, opts)
		look := func(by *engine, name string) (olddriver.Record, bool) {
			t.Helper()
			rec, found, err := by.Lookup(t.Context(), name)
			if err != nil {
				t.Fatalf("%s: Lookup: %v", what, err)
			}
			return rec, found
		}
		if rec, found := look(s, "name"); found {
			t.Errorf("%s: a name that is free is shown as %+v", what, rec)
		}
		req := grant(t, s, "name", time.Minute)
		if rec, found := look(s, "name"); !found || rec.Holder != req.Holder || rec.Remaining <= 0 || rec.Name != "name" {
			t.Errorf("%s: the store's own hold is shown as %+v, %v", what, rec, found)
		}
		want := fmt.Sprintf("(PID %d)", sessionsOf(s)[0])
		if rec, found := look(other, "name"); !found || !strings.HasPrefix(rec.Holder, "holdfast ") || !strings.HasSuffix(rec.Holder, want) || rec.Remaining != 0 || rec.Name != "name" {
			t.Errorf("%s: the hold of another store is shown as %+v, %v, want %s", what, rec, found, want)
		}
		if rec, found := look(other, "longer name"); found {
			t.Errorf("%s: another name is shown as %+v", what, rec)
		}
		release(t, s, req)
		if rec, found := look(other, "name"); found {
			t.Errorf("%s: a name that was released is shown as %+v", what, rec)
		}
		key, _ := opts.Keys("name")
		conn, err := pgtest.OpenPool(t, server.URL("postgres"), "application_name=stranger").Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_lock_shared("+key.sqlLiteral()+")"); err != nil {
			t.Fatal(err)
		}
		if rec, found := look(other, "name"); !found || rec.Holder != fmt.Sprintf("stranger (PID %d)", conn.Conn().PgConn().PID()) {
			t.Errorf("%s: the lock of another program is shown as %+v, %v", what, rec, found)
		}
		conn.Conn().Close(context.Background())
		conn.Release()
	}
}

// Where nothing is known there is an error.
func TestLookupGone(t *testing.T) {
	t.Parallel()
	s := open(t, "127.0.0.1:1", keysOf(t))
	if _, found, err := s.Lookup(t.Context(), "name"); found || err == nil {
		t.Errorf("Lookup without a server: %v, %v, want an error", found, err)
	}
	raw := open(t, pgtest.Postgres().Addr, &Options{Keys: RawKeys})
	if _, _, err := raw.Lookup(t.Context(), "name"); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Lookup of a name that is no key: %v, want ErrInvalid", err)
	}
}
