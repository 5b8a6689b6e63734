package lockui

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
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
	slow   atomic.Int64  // nanoseconds that a listing takes
	ended  chan struct{} // ends the listings that are not answered
}

func (s *testStore) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	s.lists.Add(1)
	return func(yield func(driver.Record, error) bool) {
		time.Sleep(time.Duration(s.slow.Load()))
		if s.broken.Load() { // It fails after the first lock, which nobody had seen before.
			_ = yield(driver.Record{Name: "a part of a listing"}, nil) && yield(driver.Record{}, errors.New("dial tcp 127.0.0.1:1: connection refused"))
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
		s.Store.List(ctx, prefix)(yield)
	}
}

func newTestStore(t *testing.T) (*testStore, *holdfast.Client) { return openTestStore(t, "worker-7") }

func openTestStore(t *testing.T, holder string) (*testStore, *holdfast.Client) {
	store := &testStore{Store: memstore.New(), ended: make(chan struct{})}
	client := holdfast.New(store, &holdfast.Config{Holder: holder})
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

// breakRequest returns the request that ends a hold.
func breakRequest(name string, token int64) *http.Request {
	r := request("POST", "/break")
	r.Body = io.NopCloser(strings.NewReader(url.Values{"store": {"0"}, "name": {name}, "token": {fmt.Sprint(token)}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
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

// A shown is what the page shows.
type shown struct {
	AllowBreak bool `json:"allow_break"`
	Stores     []storeView
	Locks      []holdView
}

// look returns what the page shows.
func look(t *testing.T, h http.Handler) (v shown) {
	t.Helper()
	status, body := get(h, "/api/locks")
	if status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	body = regexp.MustCompile(`"status":"\w+"`).ReplaceAllString(body, `"status":1`) // a Severity is not read
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return v
}

// names returns the names of the locks that are shown.
func (v shown) names() string {
	var names []string
	for _, hold := range v.Locks {
		names = append(names, hold.Name)
	}
	return strings.Join(names, " ")
}

// A page without a token serves its own host alone, under a name that a foreign page cannot have,
// and nothing that shows that a proxy or a TCP forwarder has passed it on.
func TestOnlyThisHost(t *testing.T) {
	_, client := newTestStore(t)
	o := Options{Stores: []Store{{Client: client}}, Hosts: []string{"Locks.example.com"}}
	alone := newTestPage(t, o)
	o.BehindProxy = true
	proxied := newTestPage(t, o)
	o.BehindProxy, o.Token = false, testToken
	guarded := newTestPage(t, o)
	type visit struct{ host, remote, header string }
	at := func(host string) visit { return visit{host, "127.0.0.1:5", ""} }
	from := func(remote string) visit { return visit{"localhost", remote, ""} }
	with := func(header string) visit { return visit{"localhost", "127.0.0.1:5", header} }
	for v, want := range map[visit][2]int{ // alone, and with a proxy
		at("localhost:7070"): {200, 200}, at("[::1]"): {200, 200}, at("127.8.9.1"): {200, 200}, at("[::ffff:127.0.0.1]"): {200, 200},
		at("LOCKS.example.com.:443"): {200, 200}, at("203.0.113.5:7070"): {421, 200}, at("[2001:db8::1]"): {421, 200}, at("0.0.0.0"): {421, 200},
		at("example.com"): {421, 421}, at("localhost.evil.net"): {421, 421}, at("127.0.0.1.evil.net"): {421, 421}, at(""): {421, 421},
		from("[::1]:5"): {200, 200}, from("@"): {200, 200}, from("192.0.2.1:5"): {403, 200}, from("somewhere"): {403, 200},
		with("X-Forwarded-For"): {403, 200}, with("Forwarded"): {403, 200}, with("Via"): {403, 200}, with("X-Real-Ip"): {403, 200}, with("Cf-Connecting-Ip"): {403, 200},
	} {
		for i, h := range []http.Handler{alone, proxied} {
			r := request("GET", "/api/locks")
			r.Host, r.RemoteAddr = v.host, v.remote
			if v.header != "" {
				r.Header.Set(v.header, "192.0.2.1")
			}
			if got, body := answer(h, r); got != want[i] || got != 200 && strings.Contains(body, "<") {
				t.Errorf("%+v: %d, want %d", v, got, want[i])
			}
			r.Header.Set("Authorization", "Bearer "+testToken)
			if got, _ := answer(guarded, r); (got == 200) != (want[1] == 200) {
				t.Errorf("%+v, with a token: %d", v, got)
			}
		}
	}
	r := request("GET", "/api/locks")
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.0", 1, 0 // of nginx
	if status, _ := answer(alone, r); status != 403 {
		t.Errorf("HTTP/1.0: %d", status)
	}
}

// With a Token nothing is served without it. Programs present it as a bearer token, browsers as a
// password.
func TestToken(t *testing.T) {
	_, client := newTestStore(t)
	acquire(t, client, "x", nil)
	var log bytes.Buffer
	h := newTestPage(t, Options{Stores: []Store{{Client: client}}, Token: testToken, Metrics: true,
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	password := func(token string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte("ada:"+token)) }
	var seen strings.Builder
	for authorization, want := range map[string]int{
		"": 401, "Bearer " + testToken: 200, "Bearer " + testToken + "x": 401, "Bearer": 401, testToken: 401,
		password(testToken): 200, password(testToken[1:]): 401, password(""): 401, "Basic " + testToken: 401,
	} {
		for _, path := range []string{"/", "/page.js", "/api/locks", "/metrics"} {
			r := request("GET", path)
			r.Header.Set("Authorization", authorization)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if asks := strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Basic "); w.Code != want || asks != (want == 401) {
				t.Errorf("%s with %q: %d, %v", path, authorization, w.Code, w.Header())
			}
			if shows := strings.Contains(w.Body.String(), "worker-7"); shows != (want == 200 && path == "/api/locks") {
				t.Errorf("%s with %q: %s", path, authorization, w.Body)
			}
			seen.WriteString(w.Body.String())
		}
	}
	if strings.Contains(seen.String()+log.String(), testToken) {
		t.Error("the token is on a page or in the log")
	}
	if !strings.Contains(log.String(), `msg="page of locks: wrong token" remote=127.0.0.1:40000`) {
		t.Errorf("log: %s", &log)
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

// An unlistedStore cannot list its locks, as the advisory locks of PostgreSQL.
type unlistedStore struct{ *testStore }

func (s *unlistedStore) List(context.Context, string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) { yield(driver.Record{}, driver.ErrUnsupported) }
}

func TestPageMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := newTestStore(t)
		stores := []Store{{Name: "a\"b\\c\nd", Client: client}}
		if status, _ := get(newTestPage(t, Options{Stores: stores}), "/metrics"); status != 404 {
			t.Errorf("without Metrics: %d", status)
		}
		h := newTestPage(t, Options{Stores: stores, Metrics: true})
		kept := acquire(t, client, "y", nil)
		if err := kept.ReleaseKeep(time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(viewInterval)
		if _, body := get(h, "/metrics"); !regexp.MustCompile(`(?m)^holdfast_store_oldest_hold_seconds\{.*\} 0$`).MatchString(body) {
			t.Errorf("a name that is kept is no hold:\n%s", body)
		}
		acquire(t, client, "x", nil)
		time.Sleep(viewInterval)
		_, body := get(h, "/metrics")
		for _, want := range []string{
			"# TYPE holdfast_store_up gauge\nholdfast_store_up{store=\"a\\\"b\\\\c\\nd\"} 1\n", `,state="held"} 1`, `,state="kept"} 1`,
			"holdfast_store_waiting{", "holdfast_store_oldest_hold_seconds{",
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
		time.Sleep(time.Minute)
	})
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

// A failingLog fails from a line on.
type failingLog struct{ lines, failing int }

func (l *failingLog) Write(line []byte) (int, error) {
	if l.lines++; l.lines >= l.failing {
		return 0, errors.New("broken pipe")
	}
	return len(line), nil
}

// A break does not happen that is not allowed, lacks the token, or names no hold; that another site
// makes a browser send, or a proxy passes on which changes the Host; or whose line in the log cannot
// be written before. One whose line after it cannot be written has happened.
func TestRefusedBreaks(t *testing.T) {
	_, client := newTestStore(t)
	lock := acquire(t, client, "x", nil)
	o := Options{Stores: []Store{{Client: client}}, AllowBreak: true, Logger: slog.New(slog.DiscardHandler)}
	readOnly, guarded, first, second := o, o, o, o
	readOnly.AllowBreak, guarded.Token = false, testToken
	first.Logger = slog.New(slog.NewTextHandler(&failingLog{failing: 1}, nil))
	second.Logger = slog.New(slog.NewTextHandler(&failingLog{failing: 2}, nil))
	type row struct {
		o            Options
		header, form string
		want         int
	}
	rows := []row{{o: readOnly, want: 403}, {o: guarded, want: 401}, {o: first, want: 503}}
	for _, header := range []string{
		"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site", "Origin: http://evil.net", "Origin: null",
		"Origin: https://locks.example.com", "Origin: http://203.0.113.5:7070",
	} {
		rows = append(rows, row{o: o, header: header, want: 403})
	}
	for _, form := range []string{"store=0&name=x", "store=0&name=x&token=0", "store=7&name=x&token=5", "store=0&token=5", "store=0&name=%00&token=5"} {
		rows = append(rows, row{o: o, form: form, want: 400})
	}
	for _, row := range rows {
		r := breakRequest("x", lock.Token())
		if name, value, ok := strings.Cut(row.header, ": "); ok {
			r.Header.Del("Sec-Fetch-Site")
			r.Header.Set(name, value)
		}
		if row.form != "" {
			r.Body = io.NopCloser(strings.NewReader(row.form))
		}
		if got, body := answer(newTestPage(t, row.o), r); got != row.want {
			t.Errorf("%+v: %d %s", row, got, body)
		}
	}
	h := newTestPage(t, readOnly)
	if look(t, h).AllowBreak {
		t.Error("it offers a break")
	}
	for _, method := range []string{"PUT", "DELETE", "PATCH", "POST"} {
		for _, path := range []string{"/", "/api/locks"} {
			if got, _ := answer(h, request(method, path)); got != 403 && got != 405 {
				t.Errorf("%s %s: %d", method, path, got)
			}
		}
	}
	if err := lock.Extend(t.Context(), time.Minute); err != nil {
		t.Errorf("the lock is gone: %v", err)
	}
	if status, body := answer(newTestPage(t, second), breakRequest("x", lock.Token())); status != 204 {
		t.Errorf("a break: %d %s", status, body)
	}
	if _, err := client.Lookup(t.Context(), "x"); !errors.Is(err, holdfast.ErrNotHeld) {
		t.Errorf("after a break: %v", err)
	}
}

func TestBreakEndsOneHold(t *testing.T) {
	_, client := newTestStore(t)
	var log bytes.Buffer
	h := newTestPage(t, Options{Stores: []Store{{Name: "main", Client: client}}, AllowBreak: true, BehindProxy: true,
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	first := acquire(t, client, "x", nil)
	if v := look(t, h); !v.AllowBreak || v.Locks[0].Token != first.Token() {
		t.Errorf("a viewer cannot break it: %+v", v)
	}

	if status, body := answer(h, breakRequest("x", first.Token()-1)); status != 409 || !strings.Contains(body, "over already") {
		t.Errorf("a break of a hold that is over: %d %s", status, body)
	}
	gone, leave := context.WithCancel(t.Context())
	leave() // A viewer that leaves does not stop a break half-way.
	r := breakRequest("x", first.Token()).WithContext(gone)
	r.Header.Set("X-Forwarded-User", "ada")
	if status, body := answer(h, r); status != 204 {
		t.Errorf("a break: %d %s", status, body)
	}
	if v := look(t, h); len(v.Locks) > 0 {
		t.Errorf("the page after a break: %+v", v.Locks)
	}
	if _, err := client.Lookup(context.Background(), "x"); !errors.Is(err, holdfast.ErrNotHeld) {
		t.Errorf("after the break: %v", err)
	}
	for _, want := range []string{
		`msg="page of locks: breaking" store=main name=x token=` + fmt.Sprint(first.Token()) + " remote=127.0.0.1:40000",
		`msg="page of locks: break failed" store=main name=x token=` + fmt.Sprint(first.Token()-1),
		`msg="page of locks: lock broken" store=main name=x token=` + fmt.Sprint(first.Token()) + " remote=127.0.0.1:40000",
		"user=ada", "holder=worker-7",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, &log)
		}
	}
}

// All that is HTML is the same for everybody, and comes with a policy that admits no other script.
// Browsers show the texts of others as text: see TestBrowser.
func TestHostileText(t *testing.T) {
	store := memstore.New()
	for kind, text := range hostile {
		client := holdfast.New(store, &holdfast.Config{Holder: text})
		acquire(t, client, kind+text[:min(len(text), 240)], &holdfast.Options{Metadata: map[string]string{text[:min(len(text), 60)]: text}})
		t.Cleanup(func() { _ = client.Close() })
	}
	h := newTestPage(t, Options{Stores: []Store{{Name: "<i>", Client: holdfast.New(store, nil)}}, AllowBreak: true})
	if v := look(t, h); len(v.Locks) != len(hostile) || v.Stores[0].Name != "<i>" {
		t.Errorf("the page shows %+v", v)
	}
	for _, path := range []string{"/", "/?q=" + url.QueryEscape(hostile["script"]), "/api/locks"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request("GET", path))
		if isPage := path != "/api/locks"; isPage != strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") || isPage && strings.Contains(w.Body.String(), "harmed") {
			t.Errorf("%s is %s: %s", path, w.Header().Get("Content-Type"), w.Body)
		}
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "base-uri 'none'", "frame-ancestors 'none'", "form-action 'self'"} {
			if policy := w.Header().Get("Content-Security-Policy"); !strings.Contains(policy, want) {
				t.Errorf("the policy %q lacks %q", policy, want)
			}
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "same-origin",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin"} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %q", name, got)
			}
		}
	}
}

// A store that cannot list its locks looks neither as if it had none nor as if it did not answer.
func TestStoreThatCannotList(t *testing.T) {
	base, other := newTestStore(t)
	client := holdfast.New(&unlistedStore{base}, nil)
	defer client.Close()
	acquire(t, client, "x", nil)
	h := newTestPage(t, Options{Stores: []Store{{Name: "a", Client: client}, {Name: "b", Client: other}}, Metrics: true})
	if v := look(t, h); v.Stores[0].State != storeUnlisted || v.Stores[0].Error != "" || v.Stores[1].State != storeLive || v.names() != "x" {
		t.Errorf("the page shows %+v", v)
	}
	if _, body := get(h, "/metrics"); regexp.MustCompile(`(?m)^holdfast_store_(up|locks|waiting|oldest|list)[^"]*"a"`).MatchString(body) || !strings.Contains(body, `holdfast_store_up{store="b"} 1`) {
		t.Errorf("metrics of listings:\n%s", body)
	}
}

// Before its first answer the locks of a store are unknown, on the page and in the metrics.
func TestNumbersBeforeTheFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, client := newTestStore(t)
		acquire(t, client, "x", nil)
		store.broken.Store(true)
		h := newTestPage(t, Options{Stores: []Store{{Client: client}}, Metrics: true})
		if v := look(t, h); v.Stores[0].State != storeSilent || v.Stores[0].SilentMS != 0 || !strings.Contains(v.Stores[0].Error, "refused") {
			t.Errorf("the page before an answer: %+v", v)
		}
		figures := regexp.MustCompile(`(?m)^holdfast_store_(locks|waiting|oldest)`)
		if _, body := get(h, "/metrics"); figures.MatchString(body) || !strings.Contains(body, `holdfast_store_up{store="memory"} 0`+"\n") {
			t.Errorf("metrics before an answer:\n%s", body)
		}
		store.broken.Store(false)
		time.Sleep(time.Minute)
		if v := look(t, h); v.Stores[0].State != storeLive || v.names() != "x" {
			t.Errorf("the page after an answer: %+v", v)
		}
		store.broken.Store(true)
		time.Sleep(time.Minute)
		if _, body := get(h, "/metrics"); len(figures.FindAllString(body, -1)) != 4 || !strings.Contains(body, `holdfast_store_up{store="memory"} 0`+"\n") {
			t.Errorf("metrics after an answer, without one since:\n%s", body)
		}
		time.Sleep(time.Minute)
	})
}

// The page works below any path: behind http.StripPrefix, or a proxy that does that.
func TestStripPrefix(t *testing.T) {
	_, client := newTestStore(t)
	mux := http.NewServeMux()
	mux.Handle("/ops/locks/", http.StripPrefix("/ops/locks", newTestPage(t, Options{Stores: []Store{{Client: client}}})))
	for _, path := range []string{"/ops/locks/", "/ops/locks/page.js", "/ops/locks/page.css", "/ops/locks/icon.svg", "/ops/locks/api/locks"} {
		status, body := get(mux, path)
		if status != 200 {
			t.Errorf("%s: %d", path, status)
		}
		for _, match := range regexp.MustCompile(`(?:href|action|src|fetch)(?:=|\()"([^"]*)"`).FindAllStringSubmatch(body, -1) {
			if strings.HasPrefix(match[1], "/") || strings.Contains(match[1], ":") || match[1] == "" {
				t.Errorf("%s: the link %q is not relative", path, match[1])
			}
		}
	}
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
		var viewers sync.WaitGroup
		for i := range 50 {
			viewers.Go(func() {
				time.Sleep(time.Duration(i) * 20 * time.Millisecond)
				for range 60 {
					look(t, h)
					time.Sleep(time.Second)
				}
			})
		}
		viewers.Wait()
		if n := store.lists.Load(); n < 28 || n > 36 {
			t.Errorf("%d listings in a minute for 50 viewers", n)
		}
	})
}

// A store that does not answer is shown as it was, with the age of that, beside one that answers.
// What is left of a hold, and its age, are as of now.
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
				began := time.Now()
				acquire(t, client, "on-ill", nil)
				look(t, h)
				time.Sleep(1500 * time.Millisecond)
				look(t, h)
				fail(store, true)
				acquire(t, well, "on-well", nil)
				for range 10 {
					time.Sleep(time.Second)
					look(t, h)
				}
				v := look(t, h)
				if v.names() != "on-ill on-well" || v.Stores[0].State != storeSilent || v.Stores[0].SilentMS < 9000 || v.Stores[1].State != storeLive {
					t.Errorf("while a store is silent: %+v", v)
				}
				if hold := v.Locks[0]; hold.AgeMS != time.Since(began).Milliseconds() || hold.AgeMS+hold.RemainingMS != holdfast.DefaultTTL.Milliseconds() {
					t.Errorf("of a hold that is not listed: %+v", hold)
				}
				fail(store, false)
				for range 20 {
					time.Sleep(time.Second)
					look(t, h)
				}
				if v := look(t, h); v.names() != "on-ill on-well" || v.Stores[0].State != storeLive || v.Stores[0].Error != "" {
					t.Errorf("after it answers again: %+v", v)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// A store that takes its time for a listing, now more and now less, is not silent.
func TestSlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, client := newTestStore(t)
		h := newTestPage(t, Options{Stores: []Store{{Client: client}}})
		for i := range 180 {
			store.slow.Store(int64([]time.Duration{5, 9}[store.lists.Load()%2] * time.Second))
			time.Sleep(time.Second)
			if v := look(t, h); v.Stores[0].State == storeSilent {
				t.Fatalf("after %d looks: %+v", i, v.Stores)
			}
		}
		time.Sleep(time.Minute)
	})
}
