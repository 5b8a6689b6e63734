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
	if i, j, same := duplicateURLs(urls); same {
		return nil, fmt.Errorf("%w: nodes %d and %d of the quorum have the same URL", driver.ErrInvalid, i+1, j+1)
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
	return New(nodes, o), nil
}

// duplicateURLs returns the positions of two URLs that name the same store.
func duplicateURLs(urls []string) (i, j int, same bool) {
	seen := map[string]int{}
	for j, raw := range urls {
		if u, err := url.Parse(raw); err == nil { // else it cannot be opened
			u.Host, u.Path = strings.ToLower(u.Host), strings.TrimRight(u.Path, "/")
			raw = u.String()
		}
		if i, ok := seen[raw]; ok {
			return i, j, true
		}
		seen[raw] = j
	}
	return 0, 0, false
}

// openNode never quotes the URL, which may contain a password.
func openNode(ctx context.Context, raw string) (driver.Store, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: malformed URL", driver.ErrInvalid)
	}
	open, ok := driver.Lookup(u.Scheme)
	if !ok {
		return nil, driver.UnknownScheme(u.Scheme)
	}
	return open(ctx, u)
}
