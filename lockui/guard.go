package lockui

import (
	"crypto/subtle"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

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
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "+
			"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		switch {
		case !p.servesHost(r.Host):
			why := "This page is not served under this host name."
			if !p.isGuarded() {
				why += " It has no token, and no proxy is declared."
			}
			http.Error(w, why, http.StatusMisdirectedRequest)
		case p.isExposed(r):
			http.Error(w, "This page is for this host only: it has no token, and no proxy is declared.", http.StatusForbidden)
		case p.Token != "" && !p.hasToken(r):
			h.Set("WWW-Authenticate", `Basic realm="the token of the locks"`)
			http.Error(w, "The token is missing or wrong.", http.StatusUnauthorized)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isGuarded reports whether a token or a proxy admits the viewers.
func (p *page) isGuarded() bool { return p.Token != "" || p.BehindProxy }

// servesHost reports whether the page may be requested under this name. A foreign page can reach a
// server by a name of its own that it points here, but not by an address without being at it.
// Without a guard only loopback addresses pass: any other one belongs to a TCP forwarder to
// this host.
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

// proxyHeaders are those of which a proxy adds at least one, if it has not been told otherwise.
// (nginx adds none by default.)
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
	if slices.ContainsFunc(proxyHeaders, func(name string) bool { return r.Header.Get(name) != "" }) {
		return true
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

// hasToken reports whether a request presents the token: as a bearer token, or as the password of
// any user, for which browsers ask.
func (p *page) hasToken(r *http.Request) bool {
	_, token, given := r.BasicAuth()
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		token, given = bearer, true
	}
	right := subtle.ConstantTimeCompare([]byte(token), []byte(p.Token)) == 1
	if given && !right {
		p.Logger.Warn("page of locks: wrong token", p.origin(r)...)
	}
	return right
}

// origin returns where a request comes from, for the log.
func (p *page) origin(r *http.Request) []any {
	attrs := []any{slog.String("remote", r.RemoteAddr)}
	if p.BehindProxy {
		attrs = append(attrs, slog.String("forwarded_for", r.Header.Get("X-Forwarded-For")), slog.String("user", r.Header.Get("X-Forwarded-User")))
	}
	return attrs
}
