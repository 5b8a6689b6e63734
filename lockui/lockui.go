package lockui

import (
	"cmp"
	"embed"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast"
)

// Options configure a [Handler]. Only Stores is required.
type Options struct {
	// Stores are the stores that are shown, in this order.
	Stores []Store

	// AllowBreak lets viewers end holds by force. Without it the page is read-only.
	AllowBreak bool

	// Token is what a viewer must present with each request: as the password of any user, for which
	// browsers ask once, or as "Authorization: Bearer TOKEN". It has 16 characters at least.
	// Without one, see BehindProxy.
	Token string

	// BehindProxy declares that each request has passed a proxy or a middleware that admits the
	// right people. Without it and without a Token, only requests from this host are served. With
	// it, X-Forwarded-For and X-Forwarded-User are logged with each break.
	BehindProxy bool

	// Hosts are the names under which the page is reached, without ports. Localhost and loopback
	// addresses need not be among them, nor any IP address with a Token or BehindProxy.
	Hosts []string

	// Metrics adds a page for Prometheus, at metrics.
	Metrics bool

	// Logger gets a line before each break, and one with its outcome; nil means slog.Default(). A
	// break whose first line its Handler cannot write is refused.
	Logger *slog.Logger
}

// A Store is a store that is shown.
type Store struct {
	// Name is how viewers see it; "" means the kind of store. It must not contain a secret. A
	// second store of a name gets "(2)".
	Name string

	// Client is used to list its locks, and to break them. Its Prefix bounds what is shown.
	Client *holdfast.Client
}

const minToken = 16

// Handler returns the page. There is nothing to close: it has goroutines only while somebody
// watches.
func Handler(o Options) (http.Handler, error) {
	var wrong string
	switch {
	case len(o.Stores) == 0:
		wrong = "there are no Stores"
	case slices.ContainsFunc(o.Stores, func(s Store) bool { return s.Client == nil }):
		wrong = "a Store has no Client"
	case o.Token != "" && len(o.Token) < minToken:
		wrong = fmt.Sprintf("the token has fewer than %d characters", minToken)
	}
	for _, host := range o.Hosts {
		if net.ParseIP(host) == nil && strings.ContainsAny(host, ":/") {
			wrong = fmt.Sprintf("host %q is not a name alone, like locks.example.com", host)
		}
	}
	if wrong != "" {
		return nil, fmt.Errorf("holdfast: lockui: %w: %s", holdfast.ErrInvalid, wrong)
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	p := &page{Options: o}
	names := map[string]bool{}
	for _, s := range o.Stores {
		name := cmp.Or(s.Name, s.Client.Guarantees().Store)
		for n, base := 2, name; names[name]; n++ { // also figures are told apart by it
			name = fmt.Sprintf("%s (%d)", base, n)
		}
		names[name] = true
		p.stores = append(p.stores, &store{name: name, client: s.Client})
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(files))
	mux.HandleFunc("GET /api/locks", p.serveLocks)
	mux.HandleFunc("POST /break", p.breakHold)
	if p.Metrics {
		mux.HandleFunc("GET /metrics", p.serveMetrics)
	}
	return p.protect(mux), nil
}

// A page is what all viewers see.
type page struct {
	Options
	stores []*store
}

// files are the same for all viewers: what is known of locks comes from api/locks.
//
//go:embed index.html page.css page.js icon.svg
var files embed.FS
