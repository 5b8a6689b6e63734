package driver

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// An Opener makes a store from a URL of the scheme that it was registered for. It
// must refuse parameters that it does not know ([Query.Err] does that). It must not
// put the URL in an error: the URL may contain a password.
type Opener func(ctx context.Context, u *url.URL) (Store, error)

var registry = struct {
	sync.RWMutex
	openers map[string]Opener
}{openers: map[string]Opener{}}

// Register makes a store available to holdfast.Open under a URL scheme. It is
// meant to be called from the init function of the store's package, and panics
// if the scheme is already taken.
func Register(scheme string, open Opener) {
	registry.Lock()
	defer registry.Unlock()
	if _, taken := registry.openers[scheme]; taken || open == nil {
		panic(fmt.Sprintf("driver: Register of scheme %q: taken, or no opener", scheme))
	}
	registry.openers[scheme] = open
}

// Lookup returns the opener of a URL scheme.
func Lookup(scheme string) (Opener, bool) {
	registry.RLock()
	defer registry.RUnlock()
	open, ok := registry.openers[scheme]
	return open, ok
}

// Schemes returns the registered URL schemes, sorted.
func Schemes() []string {
	registry.RLock()
	defer registry.RUnlock()
	return slices.Sorted(maps.Keys(registry.openers))
}

// schemePackages maps a URL scheme to the package of this module that registers it.
var schemePackages = map[string]string{
	"etcd":              "etcdstore",
	"etcds":             "etcdstore",
	"file":              "filestore",
	"memory":            "memstore",
	"postgres":          "pgstore",
	"postgres+advisory": "pgstore/advisory",
	"postgresql":        "pgstore",
	"quorum":            "quorumstore",
	"redis":             "redisstore",
	"redis+cluster":     "redisstore",
	"redis+sentinel":    "redisstore",
	"redis+unix":        "redisstore",
	"rediss":            "redisstore",
}

// UnknownScheme returns the error for a URL scheme that has no opener. It matches
// [ErrInvalid]. If the scheme is one of this module, the error names the missing
// import. Else it names the registered schemes, or shows what a URL looks like.
func UnknownScheme(scheme string) error {
	if pkg, ok := schemePackages[scheme]; ok {
		return fmt.Errorf("%w: the store for scheme %q is not linked into this program: import _ %q",
			ErrInvalid, scheme, "github.com/holdfast-go/holdfast/"+pkg)
	}
	if scheme == "" {
		return fmt.Errorf("%w: a store is given by a URL, such as file:///var/lib/locks or redis://host:6379", ErrInvalid)
	}
	return fmt.Errorf("%w: no store for scheme %q, there are: %s",
		ErrInvalid, scheme, strings.Join(Schemes(), ", "))
}
