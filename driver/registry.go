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

// An Opener makes a store from a URL of the scheme that it was registered for. It must refuse
// parameters that it does not know ([Query.Err] does that). It must not put the URL in an error:
// the URL may contain a password.
type Opener func(ctx context.Context, u *url.URL) (Store, error)

var registry = struct {
	sync.RWMutex
	openers map[string]Opener
}{openers: map[string]Opener{}}

// Register makes a store available to holdfast.Open under a URL scheme. It is meant to be called
// from the init function of the store's package, and panics if the scheme is already taken.
func Register(scheme string, open Opener) {
	registry.Lock()
	defer registry.Unlock()
	if _, taken := registry.openers[scheme]; taken || open == nil {
		panic(fmt.Sprintf("driver: Register of scheme %q: taken, or no opener", scheme))
	}
	registry.openers[scheme] = open
}

// Lookup returns the opener of a URL scheme. The error for one that has none matches [ErrInvalid],
// names the registered schemes, and shows what a URL looks like.
func Lookup(scheme string) (Opener, error) {
	registry.RLock()
	defer registry.RUnlock()
	if open, ok := registry.openers[scheme]; ok {
		return open, nil
	}
	known := strings.Join(slices.Sorted(maps.Keys(registry.openers)), ", ")
	return nil, fmt.Errorf("%w: no store for scheme %q, there are: %s (importing the package of a store registers it); "+
		"a URL looks like file:///var/lib/locks or redis://host:6379", ErrInvalid, scheme, known)
}
