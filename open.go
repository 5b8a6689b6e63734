package holdfast

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// Open makes a store from a URL and returns a Client of it. The package of the
// store must be linked into the program; importing it registers its URL scheme,
// as with the drivers of database/sql:
//
//	import _ "github.com/holdfast-go/holdfast/filestore"
//
// What a URL may contain is told by the package comment of each store. A scheme
// or a parameter that is not known is an error that matches [ErrInvalid].
// Closing the Client closes the store.
func Open(ctx context.Context, rawURL string, config *Config) (*Client, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		// The error of url.Parse quotes the URL, and with it perhaps a password.
		return nil, fmt.Errorf("holdfast: open store: %w: malformed URL", ErrInvalid)
	}
	open, ok := driver.Lookup(u.Scheme)
	if !ok {
		return nil, fmt.Errorf("holdfast: open store: %w: no store for scheme %q, there are: %s",
			ErrInvalid, u.Scheme, strings.Join(driver.Schemes(), ", "))
	}
	store, err := open(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("holdfast: open %s store: %w", u.Scheme, storeError(ctx, err))
	}
	c := New(store, config)
	c.owns = true
	if c.misconfig != nil {
		_ = store.Close() // nothing was done with it
		return nil, fmt.Errorf("holdfast: open %s store: %w", u.Scheme, c.misconfig)
	}
	return c, nil
}
