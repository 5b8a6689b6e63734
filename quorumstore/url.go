package quorumstore

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

func init() { driver.Register("quorum", openURL) }

// URL returns the URL of a quorum of the stores that have the given URLs, with the default options,
// for holdfast.Open. Passwords in the URLs are in the result.
func URL(nodes ...string) string {
	return "quorum:?" + url.Values{"node": nodes}.Encode()
}

// openURL makes a store that closes its nodes, whose packages must be linked into the program.
func openURL(ctx context.Context, u *url.URL) (driver.Store, error) {
	if u.Opaque != "" || u.Host != "" || u.Path != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%w: want quorum:?node=URL&node=URL", driver.ErrInvalid)
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
	seen := map[string]bool{}
	for i, raw := range urls {
		node, err := openNode(ctx, raw, seen)
		if err == nil {
			nodes = append(nodes, node)
			err = checkNodes(nodes)
		}
		if err != nil {
			for _, opened := range nodes {
				_ = opened.Close() // Nothing was done with it.
			}
			return nil, fmt.Errorf("node %d: %w", i+1, err)
		}
	}
	return New(nodes, o), nil
}

// openNode opens a node, unless one with this URL is among those seen. It never quotes the URL,
// which may contain a password.
func openNode(ctx context.Context, raw string, seen map[string]bool) (driver.Store, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: malformed URL", driver.ErrInvalid)
	}
	same := *u
	same.Host, same.Path = strings.ToLower(u.Host), strings.TrimRight(u.Path, "/")
	if seen[same.String()] {
		return nil, fmt.Errorf("%w: another node has the same URL", driver.ErrInvalid)
	}
	seen[same.String()] = true
	open, err := driver.Lookup(u.Scheme)
	if err != nil {
		return nil, err
	}
	return open(ctx, u)
}
