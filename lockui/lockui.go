package lockui

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockview"
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

	// MaxViewers is how many pages are kept up to date at the same time, 0 means 64. Further ones
	// have to be reloaded.
	MaxViewers int

	// Logger gets a line before each break, and one with its outcome; nil means slog.Default(). A
	// break whose first line its Handler cannot write is refused.
	Logger *slog.Logger
}

// A Store is a store that is shown.
type Store struct {
	// Name is how viewers see it; "" means the kind of store. It must not contain a secret. A second
	// store of a name gets "(2)".
	Name string

	// Client is used to list its locks, and to break them. Its Prefix bounds what is shown.
	Client *holdfast.Client
}

const (
	minInterval     = 100 * time.Millisecond
	minToken        = 16
	maxRequestBytes = 16 << 10
)

// Handler returns the page. It needs no end: it keeps no goroutine while nobody watches.
func Handler(o Options) (http.Handler, error) {
	o.BasePath = cmp.Or(o.BasePath, "/")
	o.Interval = cmp.Or(o.Interval, time.Second)
	o.MaxViewers = cmp.Or(o.MaxViewers, 64)
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
	case o.MaxViewers < 0:
		wrong = "MaxViewers is below 0"
	}
	for _, host := range o.Hosts {
		if net.ParseIP(host) == nil && strings.ContainsAny(host, ":/") {
			wrong = fmt.Sprintf("host %q is not a name alone, like locks.example.com", host)
		}
	}
	if wrong != "" {
		return nil, fmt.Errorf("holdfast: lockui: %w: %s", holdfast.ErrInvalid, wrong)
	}
	p := &page{Options: o, generation: rand.Text()[:8], updated: make(chan struct{})}
	names := map[string]bool{}
	for i, s := range o.Stores {
		name := cmp.Or(s.Name, s.Client.Guarantees().Store)
		for n, base := 2, name; names[name]; n++ { // also figures are told apart by it
			name = fmt.Sprintf("%s (%d)", base, n)
		}
		names[name] = true
		p.stores = append(p.stores, &store{
			index: i, name: name, client: s.Client,
			snapshot: &lockview.Snapshot{}, rows: map[string]*row{},
		})
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
	generation      string // distinguishes the updates of this page from those before a restart

	mu        sync.Mutex
	stores    []*store
	viewers   int
	stopPolls func()
	updated   chan struct{} // closed and replaced at each update
	sequence  int           // of the last update
	updates   []update      // the last ones, oldest first
	reset     update        // all rows, as of its sequence
	lastRow   int
	events    []event // oldest first
}

func (p *page) logger() *slog.Logger {
	if p.Logger != nil {
		return p.Logger
	}
	return slog.Default()
}

func (p *page) routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(method, path string, f http.HandlerFunc) { mux.HandleFunc(method+" "+p.BasePath+path, f) }
	handle("GET", "{$}", p.serveLocks)
	handle("GET", "lock", p.serveLock)
	handle("GET", "stores", p.serveStores)
	handle("GET", "events", p.serveEvents)
	handle("GET", "stream", p.serveStream)
	handle("GET", "break", p.confirmBreak)
	handle("POST", "break", p.breakHold)
	handle("GET", "api/locks", p.serveJSON)
	handle("GET", "icon.svg", serveIcon)
	if p.Metrics {
		handle("GET", "metrics", p.serveMetrics)
	}
	if p.session != "" {
		handle("POST", "sign-in", p.signIn)
		handle("POST", "sign-out", p.signOut)
	}
	if folder := strings.TrimSuffix(p.BasePath, "/"); folder != "" {
		mux.HandleFunc("GET "+folder, func(w http.ResponseWriter, _ *http.Request) {
			redirect(w, folder[strings.LastIndexByte(folder, '/')+1:]+"/")
		})
	}
	return mux
}

// redirect sends a browser to a path that is relative to its own, which a proxy may have changed.
func redirect(w http.ResponseWriter, path string) {
	w.Header().Set("Location", path)
	w.WriteHeader(http.StatusSeeOther)
}

// protect admits the requests that next may serve.
func (p *page) protect(next http.Handler) http.Handler {
	next = http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		r.Body = http.MaxBytesReader(w, r.Body, maxRequestBytes)
		switch {
		case !p.servesHost(r.Host):
			why := "This page is not served under this host name."
			if !p.isGuarded() {
				why += " It has no token, and no proxy is declared."
			}
			http.Error(w, why, http.StatusMisdirectedRequest)
		case p.isExposed(r):
			http.Error(w, "This page is for this host only: it has no token, and no proxy is declared.", http.StatusForbidden)
		case !p.signedIn(r) && r.URL.Path != p.BasePath+"sign-in" && r.URL.Path != p.BasePath+"icon.svg":
			p.refuse(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isGuarded reports whether a token or a proxy admits the viewers.
func (p *page) isGuarded() bool { return p.Token != "" || p.BehindProxy }

// servesHost reports whether the page may be requested under this name. A foreign page can reach a
// server by a name of its own that it points here, but not by an address without being at it.
// Without a guard only loopback addresses pass: another one is that of a TCP forwarder to this
// host.
func (p *page) servesHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if addr, err := netip.ParseAddr(host); err == nil && (p.isGuarded() || addr.Unmap().IsLoopback()) || host == "localhost" {
		return true
	}
	return slices.ContainsFunc(p.Hosts, func(name string) bool { return strings.EqualFold(name, host) })
}

// proxyHeaders are those of which a proxy adds at least one, if it has not been told otherwise. (nginx
// adds none by default.)
var proxyHeaders = []string{
	"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Server",
	"X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip",
}

// isExposed reports whether a request from elsewhere reaches a page that nothing guards.
func (p *page) isExposed(r *http.Request) bool {
	if p.isGuarded() {
		return false
	}
	if !r.ProtoAtLeast(1, 1) {
		return true // the default of nginx; browsers do not speak it
	}
	for _, name := range proxyHeaders {
		if r.Header.Get(name) != "" {
			return true
		}
	}
	// The form of a browser, through a proxy that changes the Host.
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || !p.servesHost(u.Host) {
			return true
		}
	}
	if r.RemoteAddr == "" || r.RemoteAddr == "@" {
		return false // a Unix socket
	}
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	return err != nil || !addr.Addr().Unmap().IsLoopback()
}

// sessionOf returns a text that proves the possession of a token without revealing it.
func sessionOf(token string) string {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("holdfast page"))
	return hex.EncodeToString(mac.Sum(nil))
}

func (p *page) signedIn(r *http.Request) bool {
	if p.session == "" {
		return true
	}
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return p.isSession(sessionOf(token))
	}
	cookie, err := r.Cookie(p.cookie)
	return err == nil && p.isSession(cookie.Value)
}

func (p *page) isSession(text string) bool {
	return subtle.ConstantTimeCompare([]byte(text), []byte(p.session)) == 1
}

func (p *page) signIn(w http.ResponseWriter, r *http.Request) {
	session := sessionOf(r.PostFormValue("token"))
	if !p.isSession(session) {
		p.logger().Warn("sign-in to the page of locks failed", p.origin(r)...)
		p.writeSignIn(w, "This is not the token.")
		return
	}
	p.setCookie(w, r, session, 0)
	redirect(w, "./")
}

func (p *page) signOut(w http.ResponseWriter, r *http.Request) {
	p.setCookie(w, r, "", -1)
	redirect(w, "./")
}

func (p *page) setCookie(w http.ResponseWriter, r *http.Request, value string, maxAge int) {
	http.SetCookie(w, &http.Cookie{
		Name: p.cookie, Value: value, Path: p.BasePath, MaxAge: maxAge, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: r.TLS != nil || p.BehindProxy && r.Header.Get("X-Forwarded-Proto") == "https",
	})
}

// refuse answers a request without the token.
func (p *page) refuse(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	if r.Method != http.MethodGet || !strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.Error(w, "The token is missing or wrong.", http.StatusUnauthorized)
		return
	}
	p.writeSignIn(w, "")
}

// origin returns where a request comes from, for the log.
func (p *page) origin(r *http.Request) []any {
	attrs := []any{slog.String("remote", r.RemoteAddr)}
	if p.BehindProxy {
		attrs = append(attrs, slog.String("forwarded_for", r.Header.Get("X-Forwarded-For")), slog.String("user", r.Header.Get("X-Forwarded-User")))
	}
	return attrs
}

// errNoStore is the error of a request with a wrong number of a store.
var errNoStore = errors.New("there is no such store")
