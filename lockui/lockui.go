package lockui

import (
	"cmp"
	"embed"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
)

// Options configure a [Handler]. Only Stores is required.
type Options struct {
	// Stores are the stores that are shown, in this order.
	Stores []Store

	// AllowBreak lets viewers end holds by force. Without it the page is read-only.
	AllowBreak bool

	// Token is what a viewer must present: once in a form, which sets a cookie, or with each
	// request as "Authorization: Bearer TOKEN". It has 16 characters at least. Without one, see
	// BehindProxy.
	Token string

	// BehindProxy declares that each request has passed a proxy or a middleware that admits the
	// right people. Without it and without a Token, only requests from this host are served. With
	// it, X-Forwarded-For and X-Forwarded-User are logged with each break, and
	// X-Forwarded-Proto is trusted.
	BehindProxy bool

	// Hosts are the names under which the page is reached, without ports. Localhost and loopback
	// addresses need not be among them, nor any IP address with a Token or BehindProxy.
	Hosts []string

	// BasePath is the path of the page as its requests have it. It begins and ends with a slash;
	// "" means "/".
	BasePath string

	// Metrics adds a page for Prometheus, at metrics below BasePath.
	Metrics bool

	// Interval is the time between two listings of a store, at least 100ms; 0 means one second.
	Interval time.Duration

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

const (
	minInterval = 100 * time.Millisecond
	minToken    = 16
)

// Handler returns the page. It needs no end: it keeps no goroutine while nobody watches.
func Handler(o Options) (http.Handler, error) {
	o.BasePath = cmp.Or(o.BasePath, "/")
	o.Interval = cmp.Or(o.Interval, time.Second)
	validBasePath := regexp.MustCompile(`^/([A-Za-z0-9._~-]+/)*$`)
	var wrong string
	switch {
	case len(o.Stores) == 0:
		wrong = "there are no Stores"
	case slices.ContainsFunc(o.Stores, func(s Store) bool { return s.Client == nil }):
		wrong = "a Store has no Client"
	case o.Token != "" && len(o.Token) < minToken:
		wrong = fmt.Sprintf("the Token has fewer than %d characters", minToken)
	case !validBasePath.MatchString(o.BasePath), strings.Contains(o.BasePath, "/./"), strings.Contains(o.BasePath, "/../"):
		wrong = "BasePath is not like /locks/"
	case o.Interval < minInterval:
		wrong = fmt.Sprintf("Interval is below %v", minInterval)
	}
	for _, host := range o.Hosts {
		if net.ParseIP(host) == nil && strings.ContainsAny(host, ":/") {
			wrong = fmt.Sprintf("host %q is not a name alone, like locks.example.com", host)
		}
	}
	if wrong != "" {
		return nil, fmt.Errorf("holdfast: lockui: %w: %s", holdfast.ErrInvalid, wrong)
	}
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
	if o.Token != "" {
		p.session = sessionOf(o.Token)
		p.cookie = "holdfast_ui_" + sessionOf(p.session)[:8] // cookies do not differ by port
	}
	return p.protect(p.routes()), nil
}

// A page is what all viewers see.
type page struct {
	Options
	session, cookie string // the value and the name of the cookie of a viewer with the token
	stores          []*store
}

func (p *page) logger() *slog.Logger {
	if p.Logger != nil {
		return p.Logger
	}
	return slog.Default()
}

// files are the same for all viewers: what is known of locks comes from api/locks.
//
//go:embed page.html page.css page.js icon.svg
var files embed.FS

// isPublic reports whether a viewer without the token may have what is at a path.
func (p *page) isPublic(path string) bool {
	return slices.Contains([]string{"", "page.css", "page.js", "icon.svg", "sign-in"}, strings.TrimPrefix(path, p.BasePath))
}

func (p *page) routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(method, path string, f http.HandlerFunc) { mux.HandleFunc(method+" "+p.BasePath+path, f) }
	file := func(path, name string) {
		handle("GET", path, func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, files, name) })
	}
	file("{$}", "page.html")
	file("page.css", "page.css")
	file("page.js", "page.js")
	file("icon.svg", "icon.svg")
	handle("GET", "api/locks", p.serveLocks)
	handle("POST", "break", p.breakHold)
	if p.Metrics {
		handle("GET", "metrics", p.serveMetrics)
	}
	if p.session != "" {
		handle("POST", "sign-in", p.signIn)
	}
	return mux
}
