package holdfast

import (
	"context"
	"fmt"
	"net/url"

	"github.com/holdfast-go/holdfast/driver"
)

// Open makes a store from a URL and returns a Client of it. The package of the store must be
// linked into the program; importing it registers its URL scheme, as with the drivers of
// database/sql:
//
//	import _ "github.com/holdfast-go/holdfast/filestore"
//
// The package comment of each store lists what a URL may contain. A scheme or a parameter that is
// not known, and a config that is out of bounds, is an error that matches [ErrInvalid]; a config
// that requires what the store cannot do, one that matches [ErrUnsupported]. Closing the Client
// closes the store.
func Open(ctx context.Context, rawURL string, config *Config) (*Client, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		// The error of url.Parse quotes the URL, and with it perhaps a password.
		return nil, fmt.Errorf("holdfast: open store: %w: malformed URL", ErrInvalid)
	}
	open, ok := driver.Lookup(u.Scheme)
	if !ok {
		return nil, fmt.Errorf("holdfast: open store: %w", driver.UnknownScheme(u.Scheme))
	}
	if ctx == nil {
		return nil, fmt.Errorf("holdfast: open %s store: %w", u.Scheme, errNoContext)
	}
	store, err := open(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("holdfast: open %s store: %w", u.Scheme, storeError(ctx, err))
	}
	c := New(store, config)
	c.ownsStore = true
	if c.configErr != nil {
		_ = store.Close() // it was not used
		return nil, fmt.Errorf("holdfast: open %s store: %w", u.Scheme, c.configErr)
	}
	return c, nil
}
