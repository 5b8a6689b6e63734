package driver

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// An Opener makes a store from a URL of the scheme that it was registered for. It must refuse
// parameters that it does not know ([Query.Err] does that). It must not put the URL in an error:
// the URL may contain a password.
type Opener func(ctx context.Context, u *url.URL) (Store, error)

var openers sync.Map // from the schemes to an Opener each

// Register makes a store available to holdfast.Open under a URL scheme. It is meant to be called
// from the init function of the store's package, and panics if the scheme is already taken.
func Register(scheme string, open Opener) {
	if _, taken := openers.LoadOrStore(scheme, open); taken {
		panic(fmt.Sprintf("driver: Register of scheme %q, which is taken", scheme))
	}
}

// Lookup returns the opener of a URL scheme. The error for one that has none matches [ErrInvalid],
// names the registered schemes, and shows what a URL looks like.
func Lookup(scheme string) (Opener, error) {
	if open, ok := openers.Load(scheme); ok {
		return open.(Opener), nil
	}
	var known []string
	openers.Range(func(scheme, _ any) bool {
		known = append(known, scheme.(string))
		return true
	})
	slices.Sort(known)
	return nil, fmt.Errorf("%w: no store for scheme %q, there are: %s (importing the package of a store registers it); "+
		"a URL looks like file:///var/lib/locks or redis://host:6379", ErrInvalid, scheme, strings.Join(known, ", "))
}
