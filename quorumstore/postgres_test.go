//go:build unix

package quorumstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore"
	"github.com/holdfast-go/holdfast/pgstore/advisory"
	"github.com/holdfast-go/holdfast/quorumstore"
)

// PostgreSQL servers whose data folders are copies of one image are different
// nodes. The table and the advisory locks of one server are the same node.
func TestPostgresServers(t *testing.T) {
	t.Parallel()
	var urls []string
	var pools []*pgxpool.Pool
	for range 2 { // StartPostgres unpacks the same image.
		url := servers.StartPostgres(t).URL("postgres")
		pool, err := pgxpool.New(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		if err := pgstore.New(pool, nil).Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		urls, pools = append(urls, url), append(pools, pool)
	}
	sessions := strings.Replace(urls[0], "postgres:", "postgres+advisory:", 1)
	for what, c := range map[string]struct {
		nodes []string
		twins string // "" if the quorum works
	}{
		"two servers of one image":             {urls, ""},
		"the table and the advisory locks":     {[]string{urls[0], sessions}, "nodes 1 and 2 "},
		"the same, and a server of that image": {[]string{sessions, urls[1], urls[0]}, "nodes 1 and 3 "},
	} {
		client, err := holdfast.Open(t.Context(), quorumstore.URL(c.nodes...)+"&timeout=10s", nil)
		if err != nil {
			t.Fatal(err)
		}
		// A node that answers late, on a busy machine, is compared when it answers.
		for began, again := time.Now(), true; again; again = err == nil && c.twins != "" && time.Since(began) < 30*time.Second {
			var lock *holdfast.Lock
			if lock, err = client.TryAcquire(t.Context(), "name", nil); err == nil {
				err = lock.Release()
			}
		}
		switch {
		case c.twins == "" && err != nil:
			t.Errorf("%s: %v, want a grant", what, err)
		case c.twins != "" && (!errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), c.twins) || !strings.Contains(err.Error(), " started ")):
			t.Errorf("%s: %v, want ErrInvalid about %q, with the identifier", what, err, c.twins)
		}
		_ = client.Close()
	}

	// A server that does not let the user read it has no identity.
	if _, err := pools[0].Exec(t.Context(), `CREATE ROLE limited LOGIN; REVOKE EXECUTE ON FUNCTION pg_control_system FROM PUBLIC`); err != nil {
		t.Fatal(err)
	}
	limited, err := pgxpool.New(t.Context(), strings.Replace(urls[0], "postgres@", "limited@", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer limited.Close()
	for _, s := range []driver.Identifier{pgstore.New(limited, nil), advisory.New(limited, nil)} {
		if id, err := s.Identity(t.Context()); id != "" || err != nil {
			t.Errorf("%T: %q, %v, want no identity", s, id, err)
		}
		_ = s.Close()
	}
}
