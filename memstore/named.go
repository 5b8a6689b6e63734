package memstore

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// namedTables has the lock tables that are shared by name, while a Store over them
// is open.
var namedTables = struct {
	sync.Mutex
	byName map[string]*lockTable
}{byName: map[string]*lockTable{}}

func init() { driver.Register("memory", openURL) }

// Named returns the store of that name in this process. All Stores of one name
// share their locks. When the last of them is closed, the locks are gone.
func Named(name string) *Store {
	namedTables.Lock()
	defer namedTables.Unlock()
	t := namedTables.byName[name]
	if t == nil {
		t = newLockTable(0)
		namedTables.byName[name] = t
	}
	t.openStores++
	return &Store{table: t}
}

// Close implements [driver.Store]. The holds of a store made by New end with it.
// Those of a named store stay as long as another Store of that name is open.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	namedTables.Lock()
	defer namedTables.Unlock()
	if s.table.openStores--; s.table.openStores == 0 {
		maps.DeleteFunc(namedTables.byName, func(_ string, t *lockTable) bool { return t == s.table })
	}
	return nil
}

func openURL(_ context.Context, u *url.URL) (driver.Store, error) {
	if err := driver.NewQuery(u).Err(); err != nil {
		return nil, err
	}
	if u.Path != "" || u.Opaque != "" || u.User != nil {
		return nil, fmt.Errorf("%w: want memory: or memory://name", driver.ErrInvalid)
	}
	return Named(u.Host), nil
}
