package memstore

import (
	"context"
	"fmt"
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
		t = newLockTable()
		namedTables.byName[name] = t
		return &Store{table: t}
	}
	t.openStores++
	return &Store{table: t}
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
