package lockui

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memstore"
)

const testToken = "a-token-of-the-tests"

// A testStore counts listings, and answers none while it is silent.
type testStore struct {
	driver.Store
	lists  atomic.Int64
	silent atomic.Bool
	broken atomic.Bool
	coarse atomic.Bool   // what is left of a hold is in whole seconds, as in etcd
	ended  chan struct{} // ends the listings that are not answered
}

func (s *testStore) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	s.lists.Add(1)
	return func(yield func(driver.Record, error) bool) {
		if s.broken.Load() {
			yield(driver.Record{}, errors.New("dial tcp 127.0.0.1:1: connection refused"))
			return
		}
		if s.silent.Load() {
			select {
			case <-ctx.Done():
			case <-s.ended:
			}
			yield(driver.Record{}, driver.ErrClosed)
			return
		}
		s.Store.List(ctx, prefix)(func(rec driver.Record, err error) bool {
			if s.coarse.Load() && rec.Remaining > 0 {
				rec.Remaining = max(rec.Remaining.Truncate(time.Second), time.Second/2)
				rec.Until = time.Now().Round(0).Add(rec.Remaining)
			}
			return yield(rec, err)
		})
	}
}

func (s *testStore) Guarantees() driver.Guarantees {
	g := s.Store.Guarantees()
	if s.coarse.Load() {
		g.Grain = 4 * time.Second
	}
	return g
}

func newTestStore(t *testing.T) (*testStore, *holdfast.Client) {
	t.Helper()
	store := &testStore{Store: memstore.New(), ended: make(chan struct{})}
	client := holdfast.New(store, &holdfast.Config{Holder: "worker-7"})
	t.Cleanup(func() {
		close(store.ended)
		_ = client.Close()
	})
	return store, client
}

func newTestPage(t *testing.T, o Options) http.Handler {
	t.Helper()
	h, err := Handler(o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func acquire(t *testing.T, client *holdfast.Client, name string, o *holdfast.Options) *holdfast.Lock {
	t.Helper()
	lock, err := client.TryAcquire(context.Background(), name, o)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// request returns a request as a browser on this host sends it.
func request(method, target string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	r.Host, r.RemoteAddr = "localhost:7070", "127.0.0.1:40000"
	r.Header.Set("Accept", "text/html")
	if method == http.MethodPost {
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	return r
}

func answer(h http.Handler, r *http.Request) (status int, body string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func get(h http.Handler, target string) (status int, body string) {
	return answer(h, request("GET", target))
}

func TestHandlerRefuses(t *testing.T) {
	_, client := newTestStore(t)
	stores := []Store{{Client: client}}
	for text, o := range map[string]Options{
		"Stores":     {},
		"Client":     {Stores: []Store{{}}},
		"Token":      {Stores: stores, Token: "short"},
		"BasePath":   {Stores: stores, BasePath: "locks"},
		"Interval":   {Stores: stores, Interval: time.Millisecond},
		"MaxViewers": {Stores: stores, MaxViewers: -1},
		`"a:80"`:     {Stores: stores, Hosts: []string{"::1", "a:80"}},
	} {
		if _, err := Handler(o); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, path := range []string{"/a{b}/", "/./", "/../", "/a/../b/", "/a/./"} {
		if _, err := Handler(Options{Stores: stores, BasePath: path}); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("the BasePath %s: %v", path, err)
		}
	}
}

func TestForeignHost(t *testing.T) {
	_, client := newTestStore(t)
	h := newTestPage(t, Options{Stores: []Store{{Client: client}}, Hosts: []string{"Locks.example.com"}, BehindProxy: true})
	for host, want := range map[string]int{
		"localhost": 200, "localhost:7070": 200, "127.0.0.1:7070": 200, "[::1]:7070": 200, "[::1]": 200, "10.1.2.3:7070": 200, "[2001:db8::1]": 200,
		"locks.example.com": 200, "LOCKS.example.com.:443": 200,
		"example.com": 421, "locks.example.com.evil.net": 421, "localhost.evil.net": 421, "127.0.0.1.evil.net": 421, "": 421,
	} {
		r := request("GET", "/")
		r.Host = host
		if got, body := answer(h, r); got != want || got != 200 && strings.Contains(body, "<") {
			t.Errorf("Host %q: %d, want %d", host, got, want)
		}
	}
}

// A TCP forwarder adds nothing, and its requests come from this host. A browser that reaches it has
// the address of the forwarder as Host.
func TestForwarder(t *testing.T) {
	_, client := newTestStore(t)
	lock := acquire(t, client, "x", nil)
	o := Options{Stores: []Store{{Client: client}}, AllowBreak: true, Hosts: []string{"locks.example.com"}, Logger: slog.New(slog.DiscardHandler)}
	alone := newTestPage(t, o)
	o.Token = testToken
	guarded := newTestPage(t, o)
	for host, want := range map[string]int{
		"203.0.113.5:7070": 421, "10.1.2.3": 421, "[2001:db8::1]:7070": 421, "0.0.0.0:7070": 421, "[::]": 421, "[::ffff:10.1.2.3]": 421,
		"127.0.0.1:7070": 200, "127.8.9.1": 200, "[::1]:7070": 200, "[::ffff:127.0.0.1]": 200, "localhost.": 200, "locks.example.com": 200,
	} {
		r := request("GET", "/api/locks")
		r.Host = host
		if got, _ := answer(alone, r); got != want {
			t.Errorf("Host %q: %d, want %d", host, got, want)
		}
		r.Header.Set("Authorization", "Bearer "+testToken)
		if got, _ := answer(guarded, r); got != 200 {
			t.Errorf("Host %q, with a token: %d", host, got)
		}
		// The same address as the Origin of a form.
		r = request("POST", fmt.Sprintf("/break?store=0&name=y&token=%d", lock.Token()))
		r.Header.Set("Origin", "http://"+host)
		if got, _ := answer(alone, r); (got == 403) != (want == 421) {
			t.Errorf("Origin %q: %d", host, got)
		}
	}
	r := request("POST", fmt.Sprintf("/break?store=0&name=x&token=%d", lock.Token()))
	r.Host = "203.0.113.5"
	r.Header.Set("Origin", "http://203.0.113.5")
	if got, _ := answer(alone, r); got != 421 {
		t.Errorf("a break: %d", got)
	}
	if err := lock.Extend(context.Background(), time.Minute); err != nil {
		t.Errorf("the lock is gone: %v", err)
	}
}

func TestOnlyThisHost(t *testing.T) {
	_, client := newTestStore(t)
	stores := []Store{{Client: client}}
	alone, proxied := newTestPage(t, Options{Stores: stores}), newTestPage(t, Options{Stores: stores, BehindProxy: true})
	guarded := newTestPage(t, Options{Stores: stores, Token: testToken})
	for name, test := range map[string]struct {
		remote, header       string
		alone, proxy, secret int
	}{
		"this host":        {"127.0.0.1:5", "", 200, 200, 401},
		"this host, IPv6":  {"[::1]:5", "", 200, 200, 401},
		"mapped":           {"[::ffff:127.0.0.1]:5", "", 200, 200, 401},
		"a socket":         {"@", "", 200, 200, 401},
		"another":          {"192.0.2.1:5", "", 403, 200, 401},
		"another, IPv6":    {"[2001:db8::1]:5", "", 403, 200, 401},
		"unknown":          {"somewhere", "", 403, 200, 401},
		"a proxy":          {"127.0.0.1:5", "X-Forwarded-For", 403, 200, 401},
		"a modern proxy":   {"127.0.0.1:5", "Forwarded", 403, 200, 401},
		"a proxy with Via": {"127.0.0.1:5", "Via", 403, 200, 401},
	} {
		for i, want := range []int{test.alone, test.proxy, test.secret} {
			h := []http.Handler{alone, proxied, guarded}[i]
			r := request("GET", "/")
			r.RemoteAddr = test.remote
			if test.header != "" {
				r.Header.Set(test.header, "1.2.3.4")
			}
			if got, _ := answer(h, r); got != want {
				t.Errorf("%s: %d, want %d", name, got, want)
			}
		}
	}
}

func TestCrossSiteRequest(t *testing.T) {
	_, client := newTestStore(t)
	lock := acquire(t, client, "x", nil)
	h := newTestPage(t, Options{Stores: []Store{{Client: client}}, AllowBreak: true})
	target := fmt.Sprintf("/break?store=0&name=x&token=%d", lock.Token())
	for _, header := range [][2]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "http://evil.net"}, {"Origin", "null"}} {
		r := request("POST", target)
		r.Header.Del("Sec-Fetch-Site")
		r.Header.Set(header[0], header[1])
		if got, _ := answer(h, r); got != 403 {
			t.Errorf("%q: %d", header, got)
		}
	}
	if err := lock.Extend(context.Background(), time.Minute); err != nil {
		t.Errorf("the lock is gone: %v", err)
	}
}

func TestReadOnly(t *testing.T) {
	_, client := newTestStore(t)
	lock := acquire(t, client, "x", nil)
	h := newTestPage(t, Options{Stores: []Store{{Client: client}}})
	target := fmt.Sprintf("/break?store=0&name=x&token=%d", lock.Token())
	for _, method := range []string{"GET", "POST"} {
		if got, _ := answer(h, request(method, target)); got != 403 {
			t.Errorf("%s: %d", method, got)
		}
	}
	for _, view := range []string{"/", "/lock?store=0&name=x", "/stores", "/events"} {
		if got, body := get(h, view); got != 200 || strings.Contains(body, "break?") || strings.Contains(body, `method="post"`) {
			t.Errorf("%s: %d, or it offers a break", view, got)
		}
	}
	for _, method := range []string{"PUT", "DELETE", "PATCH"} {
		if got, _ := answer(h, request(method, "/")); got != 403 && got != 405 {
			t.Errorf("%s: %d", method, got)
		}
	}
	if err := lock.Extend(context.Background(), time.Minute); err != nil {
		t.Errorf("the lock is gone: %v", err)
	}
}

func TestBreakEndsOneHold(t *testing.T) {
	_, client := newTestStore(t)
	var log bytes.Buffer
	h := newTestPage(t, Options{Stores: []Store{{Name: "main", Client: client}}, AllowBreak: true, BehindProxy: true,
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	first := acquire(t, client, "x", nil)
	target := fmt.Sprintf("/break?store=0&name=x&token=%d", first.Token())
	if _, body := get(h, "/lock?store=0&name=x"); !strings.Contains(body, `href="`+strings.ReplaceAll(target[1:], "&", "&amp;")+`"`) {
		t.Errorf("the lock has no link to its break:\n%s", body)
	}
	status, body := get(h, target)
	if status != 200 || !strings.Contains(body, "Break the lock “") || !strings.Contains(body, "worker-7") {
		t.Errorf("%d, and the question does not name the holder:\n%s", status, body)
	}

	// The lock changes hands between the question and the answer.
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	second, present := acquire(t, client, "x", nil), acquire(t, client, "alive", nil)
	if status, body := answer(h, request("POST", target)); status != 409 || !strings.Contains(body, "over already") {
		t.Errorf("a break of a hold that is over: %d %s", status, body)
	}
	if status, _ := get(h, target); status != 409 {
		t.Errorf("the question about a hold that is over: %d", status)
	}
	if err := second.Extend(context.Background(), time.Minute); err != nil {
		t.Errorf("the second hold is gone: %v", err)
	}

	r := request("POST", fmt.Sprintf("/break?store=0&name=x&token=%d", second.Token()))
	r.Header.Set("X-Forwarded-User", "ada")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 303 || w.Header().Get("Location") != fmt.Sprintf("lock?store=0&name=x&broken=%d", second.Token()) {
		t.Errorf("a break: %d to %q", w.Code, w.Header().Get("Location"))
	}
	if _, body := get(h, "/"+w.Header().Get("Location")); !strings.Contains(body, fmt.Sprintf("The hold with token %d is over.", second.Token())) {
		t.Errorf("the page after a break:\n%s", body)
	}
	for _, broken := range []string{"1x", "0", fmt.Sprint(present.Token())} {
		if _, body := get(h, "/lock?store=0&name=alive&broken="+broken); strings.Contains(body, "notice\"") {
			t.Errorf("broken=%s is shown of a lock that nothing has ended", broken)
		}
	}
	if _, err := client.Lookup(context.Background(), "x"); !errors.Is(err, holdfast.ErrNotHeld) {
		t.Errorf("after the break: %v", err)
	}
	for _, want := range []string{
		`msg="page of locks: breaking" store=main name=x token=` + fmt.Sprint(second.Token()) + " remote=127.0.0.1:40000",
		`msg="page of locks: break failed" store=main name=x token=` + fmt.Sprint(first.Token()),
		`msg="page of locks: lock broken" store=main name=x token=` + fmt.Sprint(second.Token()) + " remote=127.0.0.1:40000",
		"user=ada", "holder=worker-7",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, &log)
		}
	}
	for _, bad := range []string{"/break?store=0&name=x", "/break?store=0&name=x&token=0", "/break?store=7&name=x&token=5", "/break?store=0&token=5", "/break?store=0&name=%00&token=5"} {
		for _, method := range []string{"GET", "POST"} {
			if status, _ := answer(h, request(method, bad)); status != 400 {
				t.Errorf("%s %s: %d", method, bad, status)
			}
		}
	}
}

func TestToken(t *testing.T) {
	_, client := newTestStore(t)
	lock := acquire(t, client, "x", nil)
	var log bytes.Buffer
	h := newTestPage(t, Options{Stores: []Store{{Client: client}}, AllowBreak: true, Token: testToken, Metrics: true,
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	paths := []string{"/", "/lock?store=0&name=x", "/stores", "/events", "/stream?view=locks", "/api/locks", "/metrics", "/break?store=0&name=x&token=1"}
	for _, path := range paths {
		if status, body := get(h, path); status != 401 || strings.Contains(body, "worker-7") {
			t.Errorf("%s without the token: %d", path, status)
		}
	}
	if status, _ := answer(h, request("POST", fmt.Sprintf("/break?store=0&name=x&token=%d", lock.Token()))); status != 401 {
		t.Errorf("a break without the token: %d", status)
	}
	r := request("GET", "/api/locks")
	r.Header.Set("Authorization", "Bearer "+testToken)
	if status, body := answer(h, r); status != 200 || !strings.Contains(body, `"name":"x"`) {
		t.Errorf("with the token: %d %s", status, body)
	}
	r.Header.Set("Authorization", "Bearer "+testToken+"x")
	if status, _ := answer(h, r); status != 401 {
		t.Errorf("with a wrong token: %d", status)
	}
	signIn := func(token string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "/sign-in", strings.NewReader(url.Values{"token": {token}}.Encode()))
		r.Host = "localhost"
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	if w := signIn("another-token-of-tests"); w.Code != 401 || len(w.Result().Cookies()) > 0 || !strings.Contains(w.Body.String(), "not the token") {
		t.Errorf("a wrong token: %d %s", w.Code, w.Body)
	}
	w := signIn(testToken)
	cookies := w.Result().Cookies()
	if w.Code != 303 || len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteLaxMode || strings.Contains(cookies[0].String(), testToken) {
		t.Fatalf("the token: %d %v", w.Code, cookies)
	}
	seen := w.Body.String()
	for _, path := range []string{"/", "/stores", "/events", "/lock?store=0&name=x", "/api/locks", "/metrics"} {
		r := request("GET", path)
		r.AddCookie(cookies[0])
		status, body := answer(h, r)
		if status != 200 {
			t.Errorf("%s with the cookie: %d", path, status)
		}
		seen += body
	}
	if strings.Contains(seen+log.String(), testToken) || strings.Contains(seen, cookies[0].Value) {
		t.Error("the token is on a page or in the log")
	}
	if !strings.Contains(log.String(), "sign-in to the page of locks failed") {
		t.Errorf("log: %s", &log)
	}
}

func TestHeaders(t *testing.T) {
	_, client := newTestStore(t)
	h := newTestPage(t, Options{Stores: []Store{{Client: client}}})
	nonces := map[string]bool{}
	for range 2 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request("GET", "/"))
		policy := w.Header().Get("Content-Security-Policy")
		match := regexp.MustCompile(`script-src 'nonce-(\w+)'`).FindStringSubmatch(policy)
		if match == nil || nonces[match[1]] || strings.Count(w.Body.String(), `nonce="`+match[1]+`"`) != 2 {
			t.Errorf("the policy %q is not that of the page", policy)
		}
		nonces[match[1]] = true
		for _, want := range []string{"default-src 'none'", "base-uri 'none'", "frame-ancestors 'none'", "form-action 'self'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("the policy %q lacks %q", policy, want)
			}
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin"} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %q", name, got)
			}
		}
	}
}

// Texts of others that try to be more than text.
var hostile = map[string]string{
	"script":    `<script>window.harmed=1</script>`,
	"attribute": `" onmouseover="window.harmed=1" x="`,
	"end":       `</td></tr></table><img src=x onerror=window.harmed=1>`,
	"rtl":       "abc\u202egnp.exe",
	"entity":    `&lt;b&gt; & ' "`,
	"url":       `x&store=9#y?z=%2f`,
	"long":      strings.Repeat("0123456789", 25),
}

func TestHostileText(t *testing.T) {
	store := memstore.New()
	for kind, text := range hostile {
		client := holdfast.New(store, &holdfast.Config{Holder: text})
		acquire(t, client, kind+text[:min(len(text), 240)], &holdfast.Options{Metadata: map[string]string{text[:min(len(text), 60)]: text}})
		t.Cleanup(func() { _ = client.Close() })
	}
	client := holdfast.New(store, nil)
	h := newTestPage(t, Options{Stores: []Store{{Name: "<i>", Client: client}, {Name: "b", Client: client}}, AllowBreak: true})
	views := []string{"/", "/stores", "/events"}
	for kind, text := range hostile {
		views = append(views, "/lock?store=0&name="+url.QueryEscape(kind+text[:min(len(text), 240)]), "/?q="+url.QueryEscape(text), "/?sort="+url.QueryEscape(text))
	}
	for _, view := range views {
		status, body := get(h, view)
		if status != 200 {
			t.Errorf("%s: %d", view, status)
		}
		for _, bad := range []string{"<script>window", `" onmouseover="`, "<img src=x", "\u202e", "<i>"} {
			if strings.Contains(body, bad) {
				t.Errorf("%s contains %q", view, bad)
			}
		}
	}
	if _, body := get(h, "/lock?store=0&name="+url.QueryEscape("url"+hostile["url"])); !strings.Contains(body, "Break…") {
		t.Error("a name with the characters of URLs is not found")
	}
	_, body := get(h, "/api/locks")
	for line := range strings.Lines(body) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
}

// An unlistedStore cannot list its locks, as the advisory locks of PostgreSQL.
type unlistedStore struct{ *testStore }

func (s *unlistedStore) List(context.Context, string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) { yield(driver.Record{}, driver.ErrUnsupported) }
}

func (s *unlistedStore) Guarantees() driver.Guarantees {
	g := s.Store.Guarantees()
	g.List = false
	return g
}

// A store that cannot list its locks looks neither as if it had none nor as if it did not answer.
func TestStoreThatCannotList(t *testing.T) {
	base, other := newTestStore(t)
	client := holdfast.New(&unlistedStore{base}, nil)
	defer client.Close()
	acquire(t, client, "x", nil)
	h := newTestPage(t, Options{Stores: []Store{{Client: client}}, Metrics: true})
	if _, body := get(h, "/"); !strings.Contains(body, "No locks are known: this store cannot list them.") || strings.Contains(body, "Nothing is locked.</p>") {
		t.Errorf("the page of locks:\n%s", body)
	}
	if _, body := get(h, "/stores"); !strings.Contains(body, "<dt>Locks</dt><dd>unknown</dd>") {
		t.Errorf("the page of stores:\n%s", body)
	}
	if _, body := get(h, "/api/locks"); body != `{"store":"memory","unlisted":true}`+"\n" {
		t.Errorf("JSON: %s", body)
	}
	if _, body := get(h, "/metrics"); regexp.MustCompile(`(?m)^holdfast_store_(up|locks|waiting|oldest|list)`).MatchString(body) {
		t.Errorf("metrics of listings:\n%s", body)
	}

	h = newTestPage(t, Options{Stores: []Store{{Name: "a", Client: client}, {Name: "b", Client: client}}})
	if _, body := get(h, "/"); !strings.Contains(body, "No locks are known: these stores cannot list them.") {
		t.Errorf("the page of two stores:\n%s", body)
	}
	h = newTestPage(t, Options{Stores: []Store{{Name: "a", Client: client}, {Name: "b", Client: other}}, Metrics: true})
	if _, body := get(h, "/"); !strings.Contains(body, ">Nothing is locked.</p>") {
		t.Errorf("the page with a store that lists:\n%s", body)
	}
	if _, body := get(h, "/metrics"); !strings.Contains(body, `holdfast_store_up{store="b"} 1`) {
		t.Errorf("metrics with a store that lists:\n%s", body)
	}
}

// Before its first answer the locks of a store are unknown, on the page and in the metrics.
func TestNumbersBeforeTheFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, client := newTestStore(t)
		acquire(t, client, "x", nil)
		store.broken.Store(true)
		h := newTestPage(t, Options{Stores: []Store{{Client: client}}, Metrics: true})
		if _, body := get(h, "/stores"); !strings.Contains(body, "<dt>Locks</dt><dd>unknown</dd>") {
			t.Errorf("the page of stores:\n%s", body)
		}
		if _, body := get(h, "/"); !strings.Contains(body, "No locks are known.") || strings.Contains(body, "Nothing is locked") {
			t.Errorf("the list before an answer:\n%s", body)
		}
		figures := regexp.MustCompile(`(?m)^holdfast_store_(locks|waiting|oldest)`)
		if _, body := get(h, "/metrics"); figures.MatchString(body) || !strings.Contains(body, `holdfast_store_up{store="memory"} 0`+"\n") {
			t.Errorf("metrics before an answer:\n%s", body)
		}
		store.broken.Store(false)
		time.Sleep(time.Minute)
		if _, body := get(h, "/stores"); !strings.Contains(body, "<dt>Locks</dt><dd>1 held, 0 kept, 0 waiting</dd>") {
			t.Errorf("the page of stores after an answer:\n%s", body)
		}
		store.broken.Store(true)
		time.Sleep(time.Minute)
		if _, body := get(h, "/metrics"); len(figures.FindAllString(body, -1)) != 4 || !strings.Contains(body, `holdfast_store_up{store="memory"} 0`+"\n") {
			t.Errorf("metrics after an answer, without one since:\n%s", body)
		}
		time.Sleep(time.Minute)
	})
}

func TestNoScript(t *testing.T) {
	_, client := newTestStore(t)
	for _, name := range []string{"b", "c", "a"} {
		acquire(t, client, "orders/"+name, &holdfast.Options{Metadata: map[string]string{"job": "j" + name}})
	}
	h := newTestPage(t, Options{Stores: []Store{{Client: client}}})
	names := func(target string) string {
		_, body := get(h, target)
		var names []string
		for _, match := range regexp.MustCompile(`<td class="name"><a [^>]*>orders/(\w)`).FindAllStringSubmatch(body, -1) {
			names = append(names, match[1])
		}
		return strings.Join(names, "")
	}
	for target, want := range map[string]string{
		"/": "abc", "/?sort=-name": "cba", "/?sort=token": "bca", "/?sort=-token": "acb", "/?q=JB": "b", "/?q=worker": "abc", "/?q=nothing": "", "/?sort=nonsense": "abc",
	} {
		if got := names(target); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
	_, body := get(h, "/?q=jb")
	for _, want := range []string{`<noscript><meta http-equiv="refresh"`, "1 of 3 locks", `value="jb"`, "<noscript><button>"} {
		if !strings.Contains(body, want) {
			t.Errorf("there is no %q", want)
		}
	}
	_, body = get(h, "/")
	if !regexp.MustCompile(`<td class="num left" data-until="\d+" data-lease="\d+">(29|30)s</td>`).MatchString(body) {
		t.Errorf("no time left without script:\n%s", body)
	}
}

func TestBasePath(t *testing.T) {
	_, client := newTestStore(t)
	lock := acquire(t, client, "x", nil)
	mux := http.NewServeMux()
	page := newTestPage(t, Options{Stores: []Store{{Client: client}}, BasePath: "/ops/locks/", AllowBreak: true})
	mux.Handle("/ops/locks/", page)
	mux.Handle("/ops/locks", page)
	for _, path := range []string{"/ops/locks/", "/ops/locks/stores", "/ops/locks/events", "/ops/locks/icon.svg",
		"/ops/locks/lock?store=0&name=x", fmt.Sprintf("/ops/locks/break?store=0&name=x&token=%d", lock.Token())} {
		status, body := get(mux, path)
		if status != 200 {
			t.Errorf("%s: %d", path, status)
		}
		for _, match := range regexp.MustCompile(`(?:href|action)="([^"]*)"`).FindAllStringSubmatch(body, -1) {
			if strings.HasPrefix(match[1], "/") || strings.Contains(match[1], ":") || match[1] == "" {
				t.Errorf("%s: the link %q is not relative", path, match[1])
			}
		}
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, request("GET", "/ops/locks"))
	if w.Code != 303 || w.Header().Get("Location") != "locks/" {
		t.Errorf("%d to %q", w.Code, w.Header().Get("Location"))
	}
}

// A viewer is a connection that reads the stream of a view, and applies it as the script does.
type viewer struct {
	header http.Header
	ctx    context.Context
	leave  context.CancelFunc
	stall  atomic.Bool // it reads nothing

	mu       sync.Mutex
	status   int
	pending  bytes.Buffer
	state    string
	rows     map[string]string // by id
	main     string
	resets   int
	renewals int // of rows that have not changed otherwise
	deadline time.Time
	ended    chan struct{}
}

func watch(h http.Handler, target string) *viewer {
	v := &viewer{header: http.Header{}, rows: map[string]string{}}
	v.start(h, target)
	return v
}

func (v *viewer) start(h http.Handler, target string) {
	v.ctx, v.leave = context.WithCancel(context.Background())
	v.ended = make(chan struct{})
	go func() {
		defer close(v.ended)
		h.ServeHTTP(v, request("GET", target).WithContext(v.ctx))
	}()
}

func (v *viewer) Header() http.Header { return v.header }

func (v *viewer) WriteHeader(status int) { v.status = status }

func (v *viewer) SetWriteDeadline(t time.Time) error { v.deadline = t; return nil }

func (v *viewer) SetReadDeadline(time.Time) error { return nil }

func (v *viewer) Write(data []byte) (int, error) {
	if v.stall.Load() {
		if v.deadline.IsZero() {
			<-v.ctx.Done()
		}
		time.Sleep(time.Until(v.deadline))
		return 0, os.ErrDeadlineExceeded
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.pending.Write(data)
}

var rowID = regexp.MustCompile(`data-id="(\d+)"`)

func (v *viewer) FlushError() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for text := range strings.SplitSeq(v.pending.String(), "\n\n") {
		kind, data, ok := strings.Cut(text, "\ndata: ")
		if !ok {
			continue
		}
		switch kind {
		case "event: rows":
			var u updateView
			if err := json.Unmarshal([]byte(data), &u); err != nil {
				panic(err)
			}
			if u.Reset {
				clear(v.rows)
				v.resets++
			} else {
				v.renewals += len(u.Until)
			}
			for _, id := range u.Gone {
				delete(v.rows, fmt.Sprint(id))
			}
			for _, row := range u.Rows {
				v.rows[rowID.FindStringSubmatch(string(row))[1]] = string(row)
			}
			v.state = u.Sequence
		case "event: main":
			v.main = data
		}
	}
	v.pending.Reset()
	return nil
}

func (v *viewer) text() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return fmt.Sprint(v.rows) + v.main
}

// One listing of each interval serves all viewers, and there is none without viewers.
func TestOneListingForAllViewers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, client := newTestStore(t)
		h := newTestPage(t, Options{Stores: []Store{{Client: client}}})
		acquire(t, client, "x", nil)
		time.Sleep(time.Hour)
		if n := store.lists.Load(); n != 0 {
			t.Errorf("%d listings without viewers", n)
		}
		var viewers []*viewer
		for i := range 50 {
			viewers = append(viewers, watch(h, []string{"/stream?view=locks", "/stream?view=lock&store=0&name=x", "/stream?view=stores", "/stream?view=events"}[i%4]))
		}
		time.Sleep(time.Minute)
		if n := store.lists.Load(); n < 59 || n > 61 {
			t.Errorf("%d listings in a minute for 50 viewers", n)
		}
		for _, v := range viewers {
			v.leave()
			<-v.ended
		}
		before := store.lists.Load()
		time.Sleep(time.Hour)
		if n := store.lists.Load() - before; n > 1 {
			t.Errorf("%d listings in the hour after all have left", n)
		}
	})
}

func TestViewersSeeChangesWithinTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := newTestStore(t)
		h := newTestPage(t, Options{Stores: []Store{{Client: client}}})
		v := watch(h, "/stream?view=locks")
		one := watch(h, "/stream?view=lock&store=0&name=x")
		defer func() { v.leave(); one.leave() }()
		time.Sleep(1500 * time.Millisecond)
		lock := acquire(t, client, "x", nil)
		within := 2 * time.Second
		time.Sleep(within)
		if !strings.Contains(v.text(), "worker-7") || !strings.Contains(one.text(), "worker-7") {
			t.Errorf("a new lock is not seen after %v: %s", within, v.text())
		}
		if err := lock.Release(); err != nil {
			t.Fatal(err)
		}
		other := holdfast.New(client.Store(), &holdfast.Config{Holder: "worker-8"})
		next := acquire(t, other, "x", nil)
		time.Sleep(within)
		if text := v.text(); !strings.Contains(text, "worker-8") || strings.Contains(text, "worker-7") {
			t.Errorf("a new holder is not seen after %v: %s", within, text)
		}
		if err := next.Release(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(within)
		if text := v.text(); strings.Contains(text, "worker") {
			t.Errorf("a release is not seen after %v: %s", within, text)
		}
		if text := one.text(); !strings.Contains(text, "free") || !strings.Contains(text, `event freed`) || !strings.Contains(text, `event taken`) {
			t.Errorf("the history: %s", text)
		}
		_ = other.Close()
	})
}

// Viewers of every age and speed have the same rows in the end.
func TestUpdatesAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := newTestStore(t)
		h := newTestPage(t, Options{Stores: []Store{{Client: client}, {Name: "again", Client: client}}})
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 0))
		locks := map[string]*holdfast.Lock{}
		var viewers []*viewer
		for range 300 {
			name := fmt.Sprint("lock", random.IntN(20))
			if lock := locks[name]; lock != nil {
				if err := lock.Release(); err != nil {
					t.Fatal(err)
				}
				delete(locks, name)
			} else {
				locks[name] = acquire(t, client, name, nil)
			}
			switch random.IntN(10) {
			case 0:
				viewers = append(viewers, watch(h, "/stream?view=locks"))
			case 1: // one leaves, and comes back with the rows that it had
				if len(viewers) > 0 {
					v := viewers[random.IntN(len(viewers))]
					v.leave()
					<-v.ended
					time.Sleep(time.Duration(random.IntN(20000)) * time.Millisecond)
					v.start(h, "/stream?view=locks&from="+v.state)
				}
			default:
				time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
			}
		}
		viewers = append(viewers, watch(h, "/stream?view=locks"))
		time.Sleep(5 * time.Second)
		want, resets := viewers[len(viewers)-1], 0
		for i, v := range viewers {
			v.leave()
			<-v.ended
			resets += v.resets
			if v.text() != want.text() {
				t.Errorf("seed %d: viewer %d has %s, want %s", seed, i, v.text(), want.text())
			}
		}
		if n := len(want.rows); n != 2*len(locks) || n == 0 {
			t.Errorf("seed %d: %d rows of %d locks in two stores", seed, n, len(locks))
		}
		if resets < len(viewers) {
			t.Errorf("seed %d: %d viewers were sent all rows %d times", seed, len(viewers), resets)
		}
	})
}

// A viewer that does not read is given up, and keeps nobody waiting.
func TestStalledViewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := newTestStore(t)
		h := newTestPage(t, Options{Stores: []Store{{Client: client}}})
		stalled := watch(h, "/stream?view=locks")
		stalled.stall.Store(true)
		v := watch(h, "/stream?view=locks")
		time.Sleep(1500 * time.Millisecond)
		acquire(t, client, "x", nil)
		time.Sleep(2 * time.Second)
		if !strings.Contains(v.text(), "worker-7") {
			t.Error("a viewer waits for another one")
		}
		time.Sleep(writeTimeout)
		select {
		case <-stalled.ended:
		default:
			t.Errorf("a viewer that reads nothing is kept for more than %v", writeTimeout)
		}
		stalled.leave()
		v.leave()
		<-v.ended
	})
}

func TestTooManyViewers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := newTestStore(t)
		h := newTestPage(t, Options{Stores: []Store{{Client: client}}, MaxViewers: 2})
		viewers := []*viewer{watch(h, "/stream?view=locks"), watch(h, "/stream?view=events")}
		synctest.Wait()
		late := watch(h, "/stream?view=locks")
		time.Sleep(time.Second)
		late.leave()
		<-late.ended
		if late.status != 503 {
			t.Errorf("one more viewer: %d", late.status)
		}
		if status, _ := get(h, "/"); status != 200 {
			t.Errorf("a page beside them: %d", status)
		}
		for _, v := range viewers {
			v.leave()
			<-v.ended
		}
		third := watch(h, "/stream?view=locks")
		time.Sleep(time.Second)
		third.leave()
		<-third.ended
		if third.status == 503 {
			t.Error("the room is not used again")
		}
	})
}

// What a store without an answer has of a lock is not that it is free.
func TestLockOfASilentStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, client := newTestStore(t)
		h := newTestPage(t, Options{Stores: []Store{{Name: "ill", Client: client}}})
		acquire(t, client, "held", nil)
		v := watch(h, "/stream?view=lock&store=0&name=free")
		time.Sleep(1500 * time.Millisecond)
		if _, body := get(h, "/lock?store=0&name=free"); !strings.Contains(body, `lead where live`) || !strings.Contains(body, `<span class="answer"> · free</span>`) {
			t.Errorf("of a store that answers:\n%s", body)
		}
		store.silent.Store(true)
		time.Sleep(10 * time.Second)
		for name, want := range map[string]string{
			"free": `lead where stale" data-answered="\d+" data-stale="\d+">ill<span class="answer"> · free</span><span class="silence"> · not known, no answer for <span data-since="\d+">1\ds<`,
			"held": `lead where stale" data-answered="\d+" data-stale="\d+">ill · held<span class="silence"> · no answer for <span data-since="\d+">1\ds<`,
		} {
			if _, body := get(h, "/lock?store=0&name="+name); !regexp.MustCompile(want).MatchString(body) {
				t.Errorf("%s:\n%s", name, body)
			}
		}
		if _, body := get(h, "/lock?store=0&name=free&broken=1"); strings.Contains(body, "notice\"") {
			t.Error("a store without an answer shows that a hold is over")
		}
		store.silent.Store(false)
		v.leave()
		<-v.ended
		time.Sleep(time.Minute)
	})
}

// The lease is what the last renewal gave, and not the longest of all.
func TestExpiringAfterAnExtension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := newTestStore(t)
		h := newTestPage(t, Options{Stores: []Store{{Client: client}}, Interval: minInterval})
		lock := acquire(t, client, "x", &holdfast.Options{TTL: 2 * time.Second})
		if err := lock.Extend(context.Background(), 6*time.Second); err != nil {
			t.Fatal(err)
		}
		get(h, "/")
		time.Sleep(6 * time.Second) // The next renewal is due only when the time of the extension is short.
		for range 100 {
			time.Sleep(minInterval)
			if _, body := get(h, "/"); strings.Contains(body, `class="expiring"`) {
				t.Fatalf("a lock that is renewed is shown as expiring (%v)", lock.Err())
			}
		}
		overdue := acquire(t, client, "y", &holdfast.Options{TTL: 2 * time.Second, NoRenew: true})
		time.Sleep(minInterval)
		get(h, "/")
		time.Sleep(1500 * time.Millisecond)
		if _, body := get(h, "/"); !strings.Contains(body, `class="expiring"`) || overdue.Err() != nil {
			t.Errorf("a lock that is not renewed is not shown as expiring (%v)", overdue.Err())
		}
	})
}

// On a store that measures time in steps, as etcd does, the end of a hold seems to move from one
// listing to the next. That is no renewal: viewers get none, and the hold is shown as expiring when
// it is. One that is renewed is not.
func TestStepsAreNoRenewals(t *testing.T) {
	for _, ttl := range []time.Duration{6 * time.Second, 10 * time.Second, 30 * time.Second} {
		t.Run(ttl.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, _ := newTestStore(t)
				store.coarse.Store(true)
				client := holdfast.New(store, nil)
				defer client.Close()
				h := newTestPage(t, Options{Stores: []Store{{Client: client}}, Interval: 170 * time.Millisecond})
				acquire(t, client, "left", &holdfast.Options{TTL: ttl, NoRenew: true})
				v := watch(h, "/stream?view=locks")
				synctest.Wait()
				began := time.Now()
				for time.Since(began) < ttl-2*time.Second {
					time.Sleep(170 * time.Millisecond)
					_, body := get(h, "/")
					left := ttl - time.Since(began)
					if expiring := strings.Contains(body, `class="expiring"`); expiring && left > ttl/3+time.Second || !expiring && left < ttl/3-time.Second {
						t.Errorf("with %v left of %v a lock is shown as expiring: %v", left, ttl, expiring)
						break
					}
				}
				v.mu.Lock()
				if v.renewals > 0 {
					t.Errorf("a viewer got %d renewals of a lock that is not renewed", v.renewals)
				}
				v.mu.Unlock()
				v.leave()
				<-v.ended
				time.Sleep(3 * time.Second) // it has expired

				renewed := acquire(t, client, "renewed", &holdfast.Options{TTL: ttl})
				for range 300 {
					time.Sleep(170 * time.Millisecond)
					if _, body := get(h, "/"); strings.Contains(body, `class="expiring"`) {
						t.Errorf("a lock with a TTL of %v that is renewed is shown as expiring (%v)", ttl, renewed.Err())
						break
					}
				}
			})
		})
	}
}

// A store that does not answer is shown as it was, with the age of that, beside one that answers.
func TestSilentStore(t *testing.T) {
	for name, fail := range map[string]func(*testStore, bool){
		"silent": func(s *testStore, on bool) { s.silent.Store(on) },
		"broken": func(s *testStore, on bool) { s.broken.Store(on) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, client := newTestStore(t)
				_, well := newTestStore(t)
				h := newTestPage(t, Options{Stores: []Store{{Name: "ill", Client: client}, {Name: "well", Client: well}}})
				acquire(t, client, "on-ill", nil)
				v := watch(h, "/stream?view=locks")
				time.Sleep(1500 * time.Millisecond)
				fail(store, true)
				acquire(t, well, "on-well", nil)
				time.Sleep(10 * time.Second)
				status, body := get(h, "/")
				if status != 200 || !strings.Contains(body, "on-ill") || !strings.Contains(body, "on-well") {
					t.Errorf("%d, and locks are missing:\n%s", status, body)
				}
				strip := regexp.MustCompile(`(?s)<ul id="strip".*</ul>`).FindString(body)
				if !regexp.MustCompile(`data-store="0" data-answered="\d+" data-stale="3000" class="stale".*no answer for <span data-since="\d+">1[0-9]s<`).MatchString(strip) ||
					!regexp.MustCompile(`data-store="1" data-answered="\d+" data-stale="3000" class="live"`).MatchString(strip) {
					t.Errorf("the stores are shown as %s", strip)
				}
				if strings.Contains(body, "refused") {
					t.Error("the page of locks has the error")
				}
				fail(store, false)
				time.Sleep(20 * time.Second)
				_, body = get(h, "/")
				if strings.Contains(body, `class="stale"`) || !strings.Contains(body, "on-ill") {
					t.Error("the store is not shown as answering again")
				}
				_, body = get(h, "/events")
				if !strings.Contains(body, "does not answer") || !strings.Contains(body, "answers again") || strings.Contains(body, `event freed`) {
					t.Errorf("events: %s", body)
				}
				v.leave()
				<-v.ended
				time.Sleep(time.Minute)
			})
		})
	}
}

func TestStoresView(t *testing.T) {
	store, client := newTestStore(t)
	h := newTestPage(t, Options{Stores: []Store{{Name: "main", Client: client}}})
	store.broken.Store(true)
	deadline := time.Now().Add(10 * time.Second)
	for {
		_, body := get(h, "/stores")
		if strings.Contains(body, "latency") && strings.Contains(body, "connection refused") && strings.Contains(body, "served in order") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no findings:\n%s", body)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestPageMetrics(t *testing.T) {
	store, client := newTestStore(t)
	stores := []Store{{Name: "a\"b\\c\nd", Client: client}}
	if status, _ := get(newTestPage(t, Options{Stores: stores}), "/metrics"); status != 404 {
		t.Errorf("without Metrics: %d", status)
	}
	h := newTestPage(t, Options{Stores: stores, Metrics: true, Interval: minInterval})
	kept := acquire(t, client, "y", nil)
	if err := kept.ReleaseKeep(time.Minute); err != nil {
		t.Fatal(err)
	}
	time.Sleep(minInterval)
	if _, body := get(h, "/metrics"); !regexp.MustCompile(`(?m)^holdfast_store_oldest_hold_seconds\{.*\} 0$`).MatchString(body) {
		t.Errorf("a name that is kept is no hold:\n%s", body)
	}
	acquire(t, client, "x", nil)
	time.Sleep(2 * minInterval)
	_, body := get(h, "/metrics")
	for _, want := range []string{
		"# TYPE holdfast_store_up gauge\nholdfast_store_up{store=\"a\\\"b\\\\c\\nd\"} 1\n", `,state="held"} 1`, `,state="kept"} 1`,
		"holdfast_store_waiting{", "holdfast_store_oldest_hold_seconds{", "holdfast_store_list_errors_total{store=\"a\\\"b\\\\c\\nd\"} 0\n",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("there is no %q in\n%s", want, body)
		}
	}
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, "# ") && !regexp.MustCompile(`^holdfast_store_[a-z_]+\{store="(\\.|[^"\\])*"(,[a-z]+="[a-z]+")?\} [0-9.e+-]+\n$`).MatchString(line) {
			t.Errorf("not the text format: %q", line)
		}
	}
	store.broken.Store(true)
	time.Sleep(2 * minInterval)
	if _, body := get(h, "/metrics"); !strings.Contains(body, "} 0\n# HELP holdfast_store_locks") || !strings.Contains(body, `,state="held"} 1`) {
		t.Errorf("of a store that fails:\n%s", body)
	}
}

// A scrape of a store that does not answer takes 2 s, and has what was last seen, so that a
// scrape_timeout above that does not lose the outage.
func TestScrapeOfASilentStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, client := newTestStore(t)
		acquire(t, client, "x", nil)
		h := newTestPage(t, Options{Stores: []Store{{Client: client}}, Metrics: true})
		get(h, "/metrics")
		store.silent.Store(true)
		time.Sleep(5 * time.Second)
		for _, up := range []string{"1", "0"} { // The listing fails after 10 s without an answer.
			began := time.Now()
			_, body := get(h, "/metrics")
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("a scrape took %v", took)
			}
			for _, want := range []string{`holdfast_store_up{store="memory"} ` + up + "\n", `,state="held"} 1`} {
				if !strings.Contains(body, want) {
					t.Errorf("there is no %q in\n%s", want, body)
				}
			}
			time.Sleep(15 * time.Second)
		}
	})
}

// A proxy that does not say that it is one may show by another header. One that shows by none, and
// changes the Host, shows by the Origin of a form.
func TestProxyThatHides(t *testing.T) {
	_, client := newTestStore(t)
	o := Options{Stores: []Store{{Client: client}}, AllowBreak: true, Logger: slog.New(slog.DiscardHandler)}
	alone := newTestPage(t, o)
	o.BehindProxy = true
	proxied := newTestPage(t, o)
	for _, header := range []string{"X-Real-Ip", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Server", "Cf-Connecting-Ip", "True-Client-Ip", "X-Client-Ip"} {
		r := request("GET", "/")
		r.Header.Set(header, "192.0.2.1")
		if status, _ := answer(alone, r); status != 403 {
			t.Errorf("%s: %d", header, status)
		}
		if status, _ := answer(proxied, r); status != 200 {
			t.Errorf("%s, behind a proxy: %d", header, status)
		}
	}
	r := request("GET", "/")
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.0", 1, 0 // of nginx
	if status, _ := answer(alone, r); status != 403 {
		t.Errorf("HTTP/1.0: %d", status)
	}
	lock := acquire(t, client, "x", nil)
	for _, test := range []struct {
		origin string
		want   int
	}{{"https://locks.example.com", 403}, {"null", 403}, {"http://localhost:7070", 303}} {
		r := request("POST", fmt.Sprintf("/break?store=0&name=x&token=%d", lock.Token()))
		r.Header.Set("Origin", test.origin)
		if status, _ := answer(alone, r); status != test.want {
			t.Errorf("Origin %s: %d, want %d", test.origin, status, test.want)
		}
	}
}

// A failingLog fails from a line on.
type failingLog struct{ lines, failing int }

func (l *failingLog) Write(line []byte) (int, error) {
	if l.lines++; l.lines >= l.failing {
		return 0, errors.New("broken pipe")
	}
	return len(line), nil
}

// A break whose first line cannot be written does not happen. Without the second one it has
// happened.
func TestBreakIsLoggedFirst(t *testing.T) {
	_, client := newTestStore(t)
	for failing, want := range map[int]int{1: 503, 2: 303} {
		lock := acquire(t, client, "x", nil)
		h := newTestPage(t, Options{Stores: []Store{{Client: client}}, AllowBreak: true,
			Logger: slog.New(slog.NewTextHandler(&failingLog{failing: failing}, nil))})
		if status, body := answer(h, request("POST", fmt.Sprintf("/break?store=0&name=x&token=%d", lock.Token()))); status != want {
			t.Errorf("line %d fails: %d %s", failing, status, body)
		}
		_, err := client.Lookup(context.Background(), "x")
		if held := err == nil; held != (want == 503) {
			t.Errorf("line %d fails: %v", failing, err)
		}
		_ = lock.Release() // of one that is broken
	}
}

// The cookie is for TLS alone where the viewer uses TLS.
func TestSecureCookie(t *testing.T) {
	_, client := newTestStore(t)
	for _, test := range []struct {
		tls, behindProxy bool
		proto            string
		want             bool
	}{
		{want: false}, {tls: true, want: true},
		{behindProxy: true, proto: "https", want: true}, {behindProxy: true, proto: "http", want: false}, {proto: "https", want: false},
	} {
		h := newTestPage(t, Options{Stores: []Store{{Client: client}}, Token: testToken, BehindProxy: test.behindProxy})
		r := request("POST", "/sign-in")
		r.Body = io.NopCloser(strings.NewReader("token=" + testToken))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if test.proto != "" {
			r.Header.Set("X-Forwarded-Proto", test.proto)
		}
		if test.tls {
			r.TLS = &tls.ConnectionState{}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if cookies := w.Result().Cookies(); len(cookies) != 1 || cookies[0].Secure != test.want {
			t.Errorf("%+v: %v", test, cookies)
		}
	}
}
