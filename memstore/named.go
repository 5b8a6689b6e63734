package memstore

import (
	"context"
	"fmt"
	"net/url"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// named holds the spaces that are shared by name, while anybody has them open.
var named = struct {
	sync.Mutex
	spaces map[string]*space
}{spaces: map[string]*space{}}

func init() { driver.Register("memory", open) }

// Named returns the store of that name in this process. All Stores of one name
// share their locks; when the last of them is closed the locks are gone.
func Named(name string) *Store {
	named.Lock()
	defer named.Unlock()
	sp := named.spaces[name]
	if sp == nil {
		sp = newSpace()
		named.spaces[name] = sp
		return &Store{space: sp}
	}
	sp.users++
	return &Store{space: sp}
}

func open(_ context.Context, u *url.URL) (driver.Store, error) {
	if err := driver.NewQuery(u).Err(); err != nil {
		return nil, err
	}
	if u.Path != "" || u.Opaque != "" || u.User != nil {
		return nil, fmt.Errorf("%w: want memory: or memory://name", driver.ErrInvalid)
	}
	if u.Host == "" {
		return New(), nil
	}
	return Named(u.Host), nil
}
