//go:build unix

package redisstore

import (
	"context"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/storecheck"
)

func TestMain(m *testing.M) {
	logging.Disable() // The client library logs what the tests do to it.
	os.Exit(m.Run())
}

// bound is how long something may take that must come.
const bound = 20 * time.Second

// open returns a store over a client of its own to an address.
func open(t *testing.T, addr string, opts *Options) *Store {
	t.Helper()
	return over(t, redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true}), opts)
}

// over returns a store over a client, which ends with the test.
func over(t *testing.T, client redis.UniversalClient, opts *Options) *Store {
	s := New(client, opts)
	t.Cleanup(func() {
		_ = s.Close()
		_ = client.Close()
	})
	return s
}

// locksOf returns a client of package holdfast over a store, which ends with the test.
func locksOf(t *testing.T, s *Store) *holdfast.Client {
	locks := holdfast.New(s, nil)
	t.Cleanup(func() { _ = locks.Close() }) // What it reports is the test's own doing.
	return locks
}

// Verbs, as tests use them.
var (
	request    = storecheck.Request
	wait       = storecheck.Wait
	release    = storecheck.Release
	renew      = storecheck.State
	eventually = storecheck.Eventually
)

// grant takes a lock that must be free.
func grant(t *testing.T, s *Store, name string, ttl time.Duration) driver.Request {
	t.Helper()
	req, _ := storecheck.Grant(t, s, name, ttl)
	return req
}

// share takes a lock that must be free for others with that limit.
func share(t *testing.T, s *Store, name string, limit int, ttl time.Duration) (driver.Request, int64) {
	t.Helper()
	req := request(name, ttl)
	req.Limit = limit
	res, err := s.Acquire(t.Context(), req)
	if err != nil || !res.Granted {
		t.Fatalf("Acquire of a share of %q: %+v, %v, want it granted", name, res, err)
	}
	return req, res.Token
}

var allVerbs = []string{"Acquire", "Renew", "Release", "Lookup", "Break", "List"}

func fails(t *testing.T, s *Store, target error, says string, verbs ...string) {
	t.Helper()
	storecheck.Fails(t, s, request("name", time.Minute), target, says, verbs...)
}

// look returns the first hold of a name, and whether there is one.
func look(s driver.Store, ctx context.Context, name string) (driver.Record, bool, error) {
	records, err := s.Lookup(ctx, name)
	if len(records) == 0 {
		return driver.Record{}, false, err
	}
	return records[0], true, err
}

// sendTogether makes calls in one batch.
func sendTogether(s *Store, calls ...*call) {
	ctx, cancel := context.WithTimeout(context.Background(), requestBound)
	defer cancel()
	s.sendBatch(ctx, calls)
}

func openFromURL(t *testing.T, text string) *Store {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openURL(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.(*Store)
}
