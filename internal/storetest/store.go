// Package storetest runs a test on every store: of package holdfast and of the recipes, in one
// process and over several, with links to the store that can be cut.
//
// To test all of them on another store, add a line to storeKinds. A store in a module of its own
// has tests that call Endings and Outage with what New returns.
package storetest

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	_ "github.com/holdfast-go/holdfast/filestore" // file:
	"github.com/holdfast-go/holdfast/memstore"
)

// A storeKind is a kind of store, and how one is started for a test.
type storeKind struct {
	name  string
	start func(tb testing.TB) *Store
}

// storeKinds are all stores. Those that need servers are added on systems that can run them.
var storeKinds = []storeKind{
	{name: "memory", start: func(testing.TB) *Store {
		return &Store{url: fixedURL("memory://" + rand.Text())}
	}},
	{name: "file", start: func(tb testing.TB) *Store {
		return &Store{url: fixedURL("file://" + filepath.ToSlash(tb.TempDir()))}
	}},
}

// A Store is a store that runs for the time of a test.
type Store struct {
	// Name is the kind of store.
	Name string

	servers []string // addresses of the servers, none if the store does not use TCP
	url     func(servers []string) string
}

// New returns a store of a kind that is not in this package. It runs for the time of the test, on
// servers at these addresses, and url returns the URL that opens it at other addresses.
func New(name string, servers []string, url func(servers []string) string) *Store {
	return &Store{Name: name, servers: servers, url: url}
}

func fixedURL(url string) func([]string) string { return func([]string) string { return url } }

// Each runs a test on every store, in parallel.
func Each(t *testing.T, test func(t *testing.T, s *Store)) {
	t.Helper()
	for _, k := range storeKinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			s := k.start(t)
			s.Name = k.name
			test(t, s)
		})
	}
}

// Server returns the store on which the recipes are tried that are tested in virtual time: Redis,
// or memory on systems that cannot run it. Each recipe ends on every store in Endings.
func Server(tb testing.TB) *Store {
	tb.Helper()
	i := slices.IndexFunc(storeKinds, func(k storeKind) bool { return k.name == "redis" })
	return storeKinds[max(i, 0)].start(tb)
}

// URL opens the store.
func (s *Store) URL() string { return s.url(s.servers) }

// Open opens a new client, which is closed when the test ends.
func (s *Store) Open(tb testing.TB, config *holdfast.Config) *holdfast.Client {
	tb.Helper()
	return s.OpenURL(tb, s.URL(), config)
}

// OpenURL opens a new client like Open, through another URL: see Link.
func (s *Store) OpenURL(tb testing.TB, url string, config *holdfast.Config) *holdfast.Client {
	tb.Helper()
	locks, err := holdfast.Open(tb.Context(), url, config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := locks.Close(); err != nil {
			tb.Errorf("closing a client of %s: %v", s.Name, err)
		}
	})
	return locks
}

// Replicas opens n clients.
func (s *Store) Replicas(tb testing.TB, n int) []*holdfast.Client {
	tb.Helper()
	clients := make([]*holdfast.Client, n)
	for i := range clients {
		clients[i] = s.Open(tb, &holdfast.Config{Holder: fmt.Sprintf("replica-%d", i+1)})
	}
	return clients
}

// Virtual runs a test in virtual time on a store in memory, and on one that is as coarse as etcd.
func Virtual(t *testing.T, test func(t *testing.T, store driver.Store)) {
	t.Helper()
	for name, grain := range map[string]time.Duration{"exact": 0, "coarse": 4 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.NewCoarse(grain)
				defer store.Close()
				test(t, store)
			})
		})
	}
}

// Client returns a client of the store for the time of the test.
func Client(t *testing.T, store driver.Store, holder string) *holdfast.Client {
	t.Helper()
	locks := holdfast.New(store, &holdfast.Config{Holder: holder})
	t.Cleanup(func() { locks.Close() })
	return locks
}

// Rounds returns how often a long test is to be repeated: the value of the variable
// TEST_ROUNDS, or else a number that suits an ordinary run.
func Rounds(tb testing.TB, ordinary int) int {
	tb.Helper()
	text := os.Getenv("TEST_ROUNDS")
	if text == "" {
		return ordinary
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		tb.Fatalf("TEST_ROUNDS is %q, want a number", text)
	}
	return n
}
