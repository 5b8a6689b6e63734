package recipetest

import (
	"crypto/rand"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/filestore" // file:
	_ "github.com/holdfast-go/holdfast/memstore"  // memory:
)

// A kind is a kind of store, and how one is started for a test.
type kind struct {
	name  string
	local bool // it is shared within one process only
	start func(tb testing.TB) *Store
}

// kinds are the stores on which all recipes are tested. Those that need servers
// are added where there are any.
var kinds = []kind{
	{"memory", true, func(tb testing.TB) *Store { return &Store{url: fixed("memory://" + rand.Text())} }},
	{"file", false, func(tb testing.TB) *Store { return &Store{url: fixed("file://" + filepath.ToSlash(tb.TempDir()))} }},
}

// A Store is a store that runs for the time of a test.
type Store struct {
	// Name is the kind of store.
	Name string

	servers []string // addresses of what keeps the locks, none if it is not reached by TCP
	url     func(servers []string) string
}

func fixed(url string) func([]string) string { return func([]string) string { return url } }

// Each runs a test on every store, in parallel.
func Each(t *testing.T, test func(t *testing.T, s *Store)) {
	t.Helper()
	each(t, kinds, test)
}

// EachShared runs a test on every store that several processes can share.
func EachShared(t *testing.T, test func(t *testing.T, s *Store)) {
	t.Helper()
	each(t, slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool { return k.local }), test)
}

func each(t *testing.T, kinds []kind, test func(t *testing.T, s *Store)) {
	t.Helper()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			s := k.start(t)
			s.Name = k.name
			test(t, s)
		})
	}
}

// URL opens the store.
func (s *Store) URL() string { return s.url(s.servers) }

// Open opens a client of its own, which is closed when the test ends.
func (s *Store) Open(tb testing.TB, config *holdfast.Config) *holdfast.Client {
	tb.Helper()
	locks, err := holdfast.Open(tb.Context(), s.URL(), config)
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
