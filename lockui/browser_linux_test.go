package lockui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memstore"
)

// A site is a page that a browser can reach, with its three stores.
type site struct {
	*httptest.Server
	ill     *testStore // the third
	clients []*holdfast.Client
}

func startSite(t *testing.T, o Options) *site {
	t.Helper()
	s := &site{}
	for i, name := range []string{"redis://cache.internal:6379", "postgres://db.internal/app", "file:///var/lib/locks"} {
		store := &testStore{Store: memstore.New(), ended: make(chan struct{})}
		client := holdfast.New(store, &holdfast.Config{Holder: fmt.Sprintf("worker-%d.prod/4711/VYIU66MM", i)})
		s.ill = store
		s.clients = append(s.clients, client)
		o.Stores = append(o.Stores, Store{Name: name, Client: client})
		t.Cleanup(func() {
			close(store.ended)
			_ = client.Close()
		})
	}
	o.Interval, o.Logger = 250*time.Millisecond, slog.New(slog.DiscardHandler)
	s.Server = httptest.NewServer(newTestPage(t, o))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// rowOf is an expression for the row of a lock.
func rowOf(name string) string {
	return `[...document.querySelectorAll('#locks tbody tr')].find(tr => tr.querySelector('.name a').textContent === ` + quote(name) + `)`
}

const seenWithin = 2 * time.Second

func checkSeen(t *testing.T, what string, took time.Duration) {
	t.Helper()
	t.Logf("%s is seen after %v", what, took)
	if took > seenWithin {
		t.Errorf("%s is seen after %v only", what, took)
	}
}

func TestBrowser(t *testing.T) {
	b := startBrowser(t)
	b.resize(1440, 900)

	t.Run("live", func(t *testing.T) {
		b.t = t
		s := startSite(t, Options{})
		locks := s.clients[0]
		b.open(s.URL + "/")
		b.wait(`document.getElementById('status').textContent === 'Live'`)
		if text := b.eval(`document.getElementById('none').innerText`); text != `"Nothing is locked."` {
			t.Errorf("an empty page has %s", text)
		}
		lock := acquire(t, locks, "orders/1", &holdfast.Options{Metadata: map[string]string{"job": "ship"}})
		checkSeen(t, "a new lock", b.wait(rowOf("orders/1")+`.innerText.includes('worker-0')`))
		for _, want := range []string{"job=ship", fmt.Sprint(lock.Token()), "redis://cache.internal:6379"} {
			b.wait(rowOf("orders/1") + `.innerText.includes(` + quote(want) + `)`)
		}
		b.wait(rowOf("orders/1") + `.querySelector('.left').innerText.match(/^[12][0-9]s$/)`)
		b.wait(`document.getElementById('count').textContent === '1 lock'`)
		if err := lock.Release(); err != nil {
			t.Fatal(err)
		}
		other := holdfast.New(locks.Store(), &holdfast.Config{Holder: "worker-9"})
		defer other.Close()
		lock = acquire(t, other, "orders/1", nil)
		checkSeen(t, "a new holder", b.wait(rowOf("orders/1")+`.innerText.includes('worker-9')`))
		if err := lock.Release(); err != nil {
			t.Fatal(err)
		}
		checkSeen(t, "a release", b.wait(`!`+rowOf("orders/1")))

		// A hold that is not renewed.
		acquire(t, locks, "late", &holdfast.Options{TTL: 12 * time.Second, NoRenew: true})
		b.wait(rowOf("late") + ` && !` + rowOf("late") + `.classList.contains('expiring')`)
		b.wait(rowOf("late") + `.classList.contains('expiring')`)
		b.checkContrast("expiring")
		b.screenshot("expiring-light")
		b.open(s.URL + "/events")
		b.wait(`['held', 'taken', 'freed'].every(e => document.querySelector('.event.' + e))`)
		b.checkNames()
		b.checkContrast("events")
		b.checkFaults("")
	})

	t.Run("kept", func(t *testing.T) {
		b.t = t
		s := startSite(t, Options{})
		kept := acquire(t, s.clients[0], "kept", &holdfast.Options{MinHold: 6 * time.Second})
		if err := kept.Release(); err != nil {
			t.Fatal(err)
		}
		b.open(s.URL + "/")
		b.wait(rowOf("kept"))
		if seen := b.eval(`new Promise(done => {
			let seen = false;
			const look = setInterval(() => {
				const tr = ` + rowOf("kept") + `;
				if (tr) { seen ||= tr.classList.contains('expiring'); return; }
				clearInterval(look);
				done(seen);
			}, 50);
		})`); seen != "false" {
			t.Error("a lock that is kept is flagged as expiring")
		}
		b.checkFaults("")
	})

	t.Run("narrow", func(t *testing.T) {
		b.t = t
		s := startSite(t, Options{})
		long := "migration/2026-11-add-an-index-to-the-table-of-orders-by-customer"
		kept := acquire(t, s.clients[0], long, &holdfast.Options{MinHold: time.Hour})
		if err := kept.Release(); err != nil {
			t.Fatal(err)
		}
		acquire(t, s.clients[0], long+"/2", &holdfast.Options{Limit: 3, TTL: time.Hour})
		acquire(t, s.clients[0], "short", &holdfast.Options{Shared: true, TTL: time.Hour})
		b.open(s.URL + "/")
		for _, width := range []int{390, 800, 1000, 1200, 1440} {
			b.resize(width, 844)
			b.wait(`document.querySelectorAll('#locks .badge').length === 3`)
			if cut := b.eval(`[...document.querySelectorAll('#locks .badge')].filter(badge => {
				const box = badge.getBoundingClientRect(), cell = badge.closest('td').getBoundingClientRect();
				return box.width === 0 || box.right > cell.right || !badge.contains(document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2));
			}).map(badge => badge.textContent).join(' ')`); cut != `""` {
				t.Errorf("at %d pixels badges are out of sight: %s", width, cut)
			}
			b.screenshot(fmt.Sprint("narrow-", width))
		}
		b.resize(1440, 900)
		b.checkFaults("")
	})

	t.Run("gap", func(t *testing.T) {
		b.t = t
		s := startSite(t, Options{})
		lock := acquire(t, s.clients[2], "x", nil)
		b.open(s.URL + "/events")
		b.wait(`document.body.innerText.includes('watched from here on')`)
		// The change has a span of time: the listings before it have failed.
		s.ill.broken.Store(true)
		b.open(s.URL + "/")
		b.wait(`document.querySelector('#strip .stale')`)
		if err := lock.Release(); err != nil {
			t.Fatal(err)
		}
		s.ill.broken.Store(false)
		for _, path := range []string{"/events", "/lock?store=2&name=x"} {
			b.open(s.URL + path)
			b.wait(`document.querySelector('.event.freed') && document.getElementById('status').textContent === 'Live'`)
			for _, width := range []int{390, 800, 1200, 1440} {
				b.resize(width, 844)
				if cut := b.eval(`[...document.querySelectorAll('.events td:first-child')].filter(td => td.querySelectorAll('time').length === 2 && td.scrollWidth > td.clientWidth).map(td => td.textContent).join(' ')`); cut != `""` {
					t.Errorf("%s at %d pixels: times are cut: %s", path, width, cut)
				}
				if b.eval(`document.querySelectorAll('.events time + time').length > 0`) != "true" {
					t.Errorf("%s has no span of time", path)
				}
				if width >= 1200 && b.eval(`[...document.querySelectorAll('.events td:first-child')].every(td => td.clientHeight < 40)`) != "true" {
					t.Errorf("%s at %d pixels: a span of time is on two lines", path, width)
				}
				b.screenshot(fmt.Sprint("gap", strings.NewReplacer("/", "-", "?", "-").Replace(path), "-", width))
			}
		}
		b.resize(1440, 900)
		b.checkFaults("")
	})

	t.Run("unlisted", func(t *testing.T) {
		b.t = t
		base, _ := newTestStore(t)
		client := holdfast.New(&unlistedStore{base}, nil)
		defer client.Close()
		s := httptest.NewServer(newTestPage(t, Options{Stores: []Store{{Client: client}}, Interval: minInterval}))
		defer s.Close()
		defer s.CloseClientConnections()
		b.open(s.URL + "/")
		b.wait(`document.getElementById('status').textContent === 'Live'`)
		if text := b.eval(`document.getElementById('none').innerText`); text != `"No locks are known: this store cannot list them."` {
			t.Errorf("the page has %s", text)
		}
		b.checkFaults("")
	})

	t.Run("too many", func(t *testing.T) {
		b.t = t
		s := startSite(t, Options{MaxViewers: 1})
		acquire(t, s.clients[0], "x", nil)
		first, err := http.Get(s.URL + "/stream?view=locks")
		if err != nil {
			t.Fatal(err)
		}
		defer first.Body.Close()
		b.open(s.URL + "/")
		b.wait(`document.getElementById('status').textContent === 'Too many viewers, reload later'`)
		// The data gets older than a store may be silent.
		b.wait(`Number(document.getElementById('age').textContent.match(/\d+/)) >= 5`)
		if text := b.eval(`document.querySelectorAll('.stale').length + document.getElementById('strip').innerText`); text[1] != '0' || strings.Contains(text, "no answer") {
			t.Errorf("stores that answer are shown as silent: %s", text)
		}
		b.checkContrast("too many")
		first.Body.Close()
		b.wait(`document.getElementById('status').textContent === 'Live'`)
		b.checkFaults("503")
	})

	t.Run("silent", func(t *testing.T) {
		b.t = t
		s := startSite(t, Options{})
		acquire(t, s.clients[0], "well", nil)
		acquire(t, s.clients[2], "ill", nil)
		b.open(s.URL + "/")
		b.wait(rowOf("ill") + ` && ` + rowOf("well"))
		s.ill.silent.Store(true)
		b.wait(rowOf("ill") + `.classList.contains('stale') && document.querySelector('.strip .stale').innerText.includes('no answer for ')`)
		if b.eval(rowOf("well")+`.classList.contains('stale')`) == "true" {
			t.Error("a store that answers is grey, too")
		}
		b.checkContrast("silent")

		b.open(s.URL + "/lock?store=2&name=free")
		b.wait(`document.querySelector('.lead.stale') && document.querySelector('.lead').innerText.includes('not known, no answer for ') && !document.querySelector('.lead').innerText.includes('free')`)
		b.checkContrast("a lock of a silent store")
		b.open(s.URL + "/")
		b.wait(rowOf("ill") + `?.classList.contains('stale')`)

		// The page itself cannot be reached any more.
		s.Config.SetKeepAlivesEnabled(false)
		s.Listener.Close()
		s.CloseClientConnections()
		b.wait(`document.body.classList.contains('offline') && document.getElementById('status').textContent === 'Disconnected'`)
		if b.eval(rowOf("well")+`.querySelector('.name a').title`) != `"well"` || b.eval(`document.querySelectorAll('.strip .stale').length`) != "1" {
			t.Error("a page that cannot be reached shows stores as silent")
		}
		b.checkContrast("offline")
		b.checkFaults("net::ERR_")
	})

	t.Run("break", func(t *testing.T) {
		b.t = t
		s := startSite(t, Options{AllowBreak: true})
		lock := acquire(t, s.clients[1], "stuck", nil)
		b.open(s.URL + "/")
		b.wait(rowOf("stuck"))
		b.eval(rowOf("stuck") + `.querySelector('a').focus()`)
		b.press("Enter") // all by keyboard
		b.wait(`document.querySelector('a.danger')`)
		b.checkNames()
		b.eval(`document.querySelector('a.danger').focus()`)
		b.press("Enter")
		b.wait(`document.querySelector('h1').innerText === 'Break the lock “stuck”?' && document.querySelector('button.danger')`)
		if text := b.eval(`document.querySelector('main').innerText`); !strings.Contains(text, "worker-1.prod/4711") || !strings.Contains(text, fmt.Sprint(lock.Token())) {
			t.Errorf("the question does not name the holder: %s", text)
		}
		b.checkNames()
		b.checkContrast("break")
		b.screenshot("break-light")
		if err := lock.Err(); err != nil {
			t.Fatalf("it is broken before the answer: %v", err)
		}
		b.eval(`document.querySelector('button.danger').focus()`)
		b.press("Enter")
		b.wait(`document.querySelector('.notice') && document.querySelector('#live').innerText.includes('free')`)
		if _, err := s.clients[1].Lookup(context.Background(), "stuck"); !errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("after the break: %v", err)
		}
		b.checkFaults("")
	})

	t.Run("hostile", func(t *testing.T) {
		b.t = t
		s := startSite(t, Options{AllowBreak: true})
		for kind, text := range hostile {
			client := holdfast.New(s.clients[0].Store(), &holdfast.Config{Holder: text})
			defer client.Close()
			acquire(t, client, kind+text[:min(len(text), 240)], &holdfast.Options{Metadata: map[string]string{text[:min(len(text), 60)]: text}})
		}
		for _, path := range []string{"/", "/events", "/stores"} {
			b.open(s.URL + path)
			b.wait(`document.getElementById('status').textContent === 'Live'`)
		}
		b.open(s.URL + "/")
		b.wait(fmt.Sprintf(`document.querySelectorAll('#locks tbody tr').length === %d`, len(hostile)))
		acquire(t, s.clients[0], "zz"+hostile["script"], nil) // by the stream
		b.wait(rowOf("zz" + hostile["script"]))
		b.wait(rowOf("rtlabc\\u202egnp.exe"))
		var links []string
		for kind, text := range hostile {
			links = append(links, kind+text)
		}
		for i := range links {
			b.open(s.URL + "/")
			b.wait(fmt.Sprintf(`document.querySelectorAll('#locks tbody tr')[%d]`, i))
			name := b.eval(fmt.Sprintf(`document.querySelectorAll('#locks tbody tr')[%d].querySelector('a').textContent`, i))
			b.click(fmt.Sprintf(`document.querySelectorAll('#locks tbody tr')[%d].querySelector('a')`, i))
			b.wait(`document.querySelector('h1.lock-name')?.textContent === ` + name + ` && document.querySelector('dl.hold')`)
		}
		if b.eval(`'harmed' in window || document.querySelectorAll('main img, main script').length > 0`) != "false" {
			t.Error("a text has become more than text")
		}
		for _, width := range []int{390, 1440} {
			b.resize(width, 800)
			if b.eval(`document.documentElement.scrollWidth <= innerWidth`) != "true" {
				t.Errorf("a text makes the page wider than %d pixels", width)
			}
		}
		b.checkFaults("")
	})

	t.Run("leaving", func(t *testing.T) {
		b.t = t
		s := startSite(t, Options{})
		b.open(s.URL + "/")
		// An evaluation that has no answer yet when its page is left ends so; the test goes on.
		if _, err := b.evaluate(`(location.href = '/events', new Promise(() => {}))`); !errors.Is(err, errLeft) {
			t.Errorf("an evaluation on a page that is left: %v", err)
		}
		b.wait(`location.pathname === '/events' && document.readyState === 'complete'`)
		b.checkFaults("")
	})

	t.Run("keyboard", func(t *testing.T) {
		b.t = t
		s := startSite(t, Options{})
		for i := range 5 {
			acquire(t, s.clients[i%2], fmt.Sprint("k", i), nil)
		}
		b.open(s.URL + "/")
		b.wait(`document.querySelectorAll('#locks tbody tr').length === 5`)
		b.press("/")
		b.press("K")
		b.press("3")
		b.wait(`document.getElementById('count').textContent === '1 of 5 locks' && location.search.includes('q=K3')`)
		b.press("Escape")
		b.wait(`document.getElementById('count').textContent === '5 locks'`)
		b.eval(`document.querySelector('th a[data-key=name]').focus()`)
		b.press("Enter")
		b.wait(`document.querySelector('th[aria-sort=descending] a').dataset.key === 'name' && document.querySelector('#locks tbody .name').innerText.startsWith('k4')`)
		acquire(t, s.clients[0], "k9", nil)
		b.wait(`document.querySelector('#locks tbody .name').innerText.startsWith('k9')`)
		b.checkFaults("")
	})

	t.Run("refusals", func(t *testing.T) {
		b.t = t
		s := startSite(t, Options{})
		lock := acquire(t, s.clients[0], "x", nil)
		target := fmt.Sprintf("%s/break?store=0&name=x&token=%d", s.URL, lock.Token())
		b.open(s.URL + "/lock?store=0&name=x")
		if status := b.eval(`fetch(` + quote(target) + `, {method: 'POST'}).then(r => r.status)`); status != "403" {
			t.Errorf("a break on a page that is read-only: %s", status)
		}
		b.checkFaults("403")
		open := startSite(t, Options{AllowBreak: true})
		lock = acquire(t, open.clients[0], "x", nil)
		// A page of another origin on this host sends a form there.
		b.eval(fmt.Sprintf(`(() => { const f = document.createElement('form'); f.method = 'post'; f.action = %s; document.body.append(f) })()`,
			quote(fmt.Sprintf("%s/break?store=0&name=x&token=%d", open.URL, lock.Token()))))
		r, err := http.NewRequest("POST", fmt.Sprintf("%s/break?store=0&name=x&token=%d", open.URL, lock.Token()), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		if answer, err := http.DefaultClient.Do(r); err != nil || answer.StatusCode != 403 {
			t.Errorf("a break from another site: %v %v", answer, err)
		}
		foreign := strings.Replace(open.URL, "127.0.0.1", "rebound.test", 1)
		r, err = http.NewRequest("GET", open.URL+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = strings.TrimPrefix(foreign, "http://")
		if answer, err := http.DefaultClient.Do(r); err != nil || answer.StatusCode != 421 {
			t.Errorf("a foreign Host: %v %v", answer, err)
		}
		if err := lock.Err(); err != nil {
			t.Error(err)
		}
	})

	t.Run("looks", func(t *testing.T) {
		b.t = t
		s := startSite(t, Options{AllowBreak: true})
		fillSite(t, s, 30)
		b.open(s.URL + "/")
		b.wait(`document.querySelectorAll('#locks tbody tr').length === 30 && document.getElementById('status').textContent === 'Live'`)
		for _, dark := range []bool{false, true} {
			b.setDark(dark)
			scheme := map[bool]string{false: "light", true: "dark"}[dark]
			for _, view := range []string{"", "stores", "events", "lock?store=0&name=deploy%2Fproduction"} {
				b.open(s.URL + "/" + view)
				b.wait(`document.getElementById('status').textContent === 'Live'`)
				if view == "stores" {
					b.wait(`!document.body.innerText.includes('is being examined')`)
				}
				name, _, _ := strings.Cut(view, "?")
				b.resize(1440, 1000)
				b.screenshot(strings.Trim("30-"+name, "-") + "-" + scheme)
				b.checkNames()
				b.checkContrast(name + " " + scheme)
				for _, width := range []int{770, 900, 1000, 1100} {
					b.resize(width, 844)
					if view == "" && b.eval(`Math.min(...[...document.querySelectorAll('td.name')].map(td => td.clientWidth)) >= 260`) != "true" {
						t.Errorf("at %d pixels the name has %s", width, b.eval(`document.querySelector('td.name').clientWidth`))
					}
					if cut := b.eval(`[...new Set([...document.querySelectorAll('td.store')].filter(td => td.scrollWidth > td.clientWidth).map(td => td.textContent))].join(' ')`); cut != `""` {
						t.Errorf("%s at %d pixels: stores are cut: %s", view, width, cut)
					}
				}
				b.screenshot(strings.Trim("30-"+name, "-") + "-tablet-" + scheme)
				b.resize(390, 844)
				if b.eval(`document.documentElement.scrollWidth <= innerWidth`) != "true" {
					t.Errorf("%s is wider than a telephone", name)
				}
				b.screenshot(strings.Trim("30-"+name, "-") + "-phone-" + scheme)
				b.resize(1440, 900)
			}
		}
		s.ill.broken.Store(true)
		b.open(s.URL + "/")
		b.wait(`document.querySelectorAll('#locks tr.stale').length > 5`)
		b.screenshot("broken-dark")
		b.checkContrast("broken dark")
		b.setDark(false)
		b.screenshot("broken-light")
		b.checkContrast("broken light")
		b.checkFaults("")
	})

	t.Run("2000", func(t *testing.T) {
		b.t = t
		s := startSite(t, Options{})
		fillSite(t, s, 2000)
		began := time.Now()
		b.open(s.URL + "/")
		b.wait(`document.querySelectorAll('#locks tbody tr').length === 2000 && document.getElementById('status').textContent === 'Live'`)
		t.Logf("2,000 locks are shown after %v", time.Since(began))
		b.screenshot("2000-light")

		// Polls without a change leave the rows alone, but for the times that pass; a change costs
		// as many mutations as rows have changed.
		const changes = `(changes.push(...observer.takeRecords().filter(passes)), changes.length)`
		b.eval(`(window.passes = r => !(r.target.nodeType === 1 ? r.target : r.target.parentElement)?.closest('.since, .left'),
			window.changes = [],
			window.observer = new MutationObserver(all => changes.push(...all.filter(passes))),
			observer.observe(document.querySelector('#locks tbody'), {childList: true, attributes: true, characterData: true, subtree: true}), true)`)
		polls := s.ill.lists.Load() + 5
		for deadline := time.Now().Add(time.Minute); s.ill.lists.Load() < polls; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the stores are not polled")
			}
		}
		if n := b.eval(changes); n != "0" {
			t.Errorf("five polls of 2,000 unchanged locks made %s mutations", n)
		}
		const added = 3
		for i := range added {
			acquire(t, s.clients[i], fmt.Sprint("changed/", i), nil)
		}
		for i := range added {
			b.wait(rowOf(fmt.Sprint("changed/", i)))
		}
		var mutations int
		if _, err := fmt.Sscan(b.eval(changes), &mutations); err != nil || mutations < added || mutations > 10*added {
			t.Errorf("%d new locks made %d mutations: %v", added, mutations, err)
		}
		b.eval(`observer.disconnect()`)
		longest := b.eval(`new Promise(done => {
			let longest = 0, last = performance.now(), end = last + 3000;
			const frame = now => { longest = Math.max(longest, now - last); last = now; now < end ? requestAnimationFrame(frame) : done(Math.round(longest)) };
			requestAnimationFrame(frame);
			const q = document.getElementById('q');
			for (const [i, text] of ['w', 'wo', '', 'job-19'].entries()) setTimeout(() => { q.value = text; q.dispatchEvent(new Event('input')) }, 500 * (i + 1));
			setTimeout(() => document.querySelector('th a[data-key=token]').click(), 2600);
		})`)
		t.Logf("the longest frame, with filters and a sort: %s ms", longest)
		b.wait(`document.getElementById('count').textContent.endsWith('of 2,003 locks')`)
		b.checkFaults("")
	})
}

// fillSite takes n locks as of a company. They outlast the test, also on a busy machine.
func fillSite(t *testing.T, s *site, n int) {
	t.Helper()
	ctx := context.Background()
	for i, lock := range []struct {
		name, holder, meta string
		o                  holdfast.Options
	}{
		{"deploy/production", "ci-runner-3/81/K2PNAQ7T", "by=ada commit=3f9c2e1", holdfast.Options{}},
		{"config", "api-1/12/A", "", holdfast.Options{Shared: true}},
		{"config", "api-2/12/B", "", holdfast.Options{Shared: true}},
		{"config", "api-3/12/C", "", holdfast.Options{Shared: true}},
		{"downloads", "fetch-1/7/D", "", holdfast.Options{Limit: 10}},
		{"cron:nightly-report", "cron-1/99/X", "", holdfast.Options{MinHold: time.Hour}},
		{"leader:scheduler", "scheduler-6b9f7c-x2x8p/1/QRZ7M2LK", "zone=eu-west-1b", holdfast.Options{}},
		{"migration/2026-11-add-an-index-to-the-table-of-orders-by-customer", "migrate-0/1/PPL", "", holdfast.Options{NoRenew: true, TTL: 10 * time.Minute}},
	} {
		if n < 10 {
			break
		}
		client := holdfast.New(s.clients[i%3].Store(), &holdfast.Config{Holder: lock.holder})
		if strings.HasPrefix(lock.name, "config") || lock.name == "deploy/production" {
			client = holdfast.New(s.clients[0].Store(), &holdfast.Config{Holder: lock.holder})
		}
		t.Cleanup(func() { _ = client.Close() })
		for pair := range strings.FieldsSeq(lock.meta) {
			if lock.o.Metadata == nil {
				lock.o.Metadata = map[string]string{}
			}
			key, value, _ := strings.Cut(pair, "=")
			lock.o.Metadata[key] = value
		}
		lock.o.TTL = cmp.Or(lock.o.TTL, time.Hour)
		held := acquire(t, client, lock.name, &lock.o)
		if lock.o.MinHold > 0 {
			if err := held.Release(); err != nil {
				t.Fatal(err)
			}
		}
		if lock.name == "deploy/production" {
			for range 2 {
				waiter := holdfast.New(client.Store(), nil)
				ctx, cancel := context.WithCancel(ctx)
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, _ = waiter.Acquire(ctx, lock.name, nil)
				}()
				t.Cleanup(func() { cancel(); <-done; _ = waiter.Close() })
			}
		}
	}
	for i := 6; i < n; i++ { // the config is one lock with three holds
		acquire(t, s.clients[i%3], fmt.Sprintf("invoices/%d", 40000+i*37), &holdfast.Options{
			TTL: time.Duration(20+i%50) * time.Minute, Metadata: map[string]string{"job": fmt.Sprint("job-", i), "why": "monthly run"}})
	}
}
