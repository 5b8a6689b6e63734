package quorumstore

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

const scheme = "quorum"

func init() { driver.Register(scheme, openURL) }

// URL returns the URL of a quorum of the stores that have the given URLs, with
// the default options: what to hand to holdfast.Open, or to another program.
// Passwords in the URLs are in the result.
func URL(nodes ...string) string {
	return scheme + ":?" + url.Values{"node": nodes}.Encode()
}

// openURL makes a store that closes its nodes. The packages of the nodes must be
// linked into the program.
func openURL(ctx context.Context, u *url.URL) (driver.Store, error) {
	if u.Opaque != "" || u.Host != "" || u.Path != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%w: want %s:?node=URL&node=URL", driver.ErrInvalid, scheme)
	}
	query := driver.NewQuery(u)
	urls := query.Strings("node")
	o := &Options{Timeout: query.Duration("timeout", 0), CloseStores: true}
	if err := query.Err(); err != nil {
		return nil, err
	}
	if len(urls) == 0 || o.Timeout < 0 {
		return nil, fmt.Errorf("%w: want one node at least, and no negative timeout", driver.ErrInvalid)
	}
	var nodes []driver.Store
	for i, raw := range urls {
		node, err := openNode(ctx, raw)
		if err != nil {
			for _, opened := range nodes {
				_ = opened.Close() // nothing was done with it
			}
			return nil, fmt.Errorf("node %d: %w", i+1, err)
		}
		nodes = append(nodes, node)
	}
	return NewWith(nodes, o), nil
}

// openNode never quotes the URL, which may have a password.
func openNode(ctx context.Context, raw string) (driver.Store, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: malformed URL", driver.ErrInvalid)
	}
	open, ok := driver.Lookup(u.Scheme)
	if !ok {
		return nil, fmt.Errorf("%w: no store for scheme %q, there are: %s", driver.ErrInvalid, u.Scheme, strings.Join(driver.Schemes(), ", "))
	}
	return open(ctx, u)
}
