package lockui

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
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
		store, client := openTestStore(t, fmt.Sprintf("worker-%d.prod/4711/VYIU66MM", i))
		s.ill = store
		s.clients = append(s.clients, client)
		o.Stores = append(o.Stores, Store{Name: name, Client: client})
	}
	o.Logger = slog.New(slog.DiscardHandler)
	s.Server = httptest.NewServer(newTestPage(t, o))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// rowOf is an expression for the row of a lock.
func rowOf(name string) string {
	return `[...document.querySelectorAll('#locks tr')].find(tr => tr.querySelector('.name').title === ` + quote(name) + `)`
}

func TestBrowser(t *testing.T) {
	b := startBrowser(t)
	b.resize(1440, 900)
	live := `document.getElementById('status').textContent === 'Live'`

	t.Run("live", func(t *testing.T) {
		b.t = t
		s := startSite(t, Options{})
		locks := s.clients[0]
		b.open(s.URL + "/")
		b.wait(live)
		b.wait(`document.getElementById('none').innerText === 'Nothing is locked.'`)
		lock := acquire(t, locks, "orders/1", &holdfast.Options{Metadata: map[string]string{"job": "ship"}})
		b.wait(rowOf("orders/1") + `.innerText.includes('worker-0')`)
		for _, want := range []string{"job=ship", fmt.Sprint(lock.Token()), "redis://cache.internal:6379"} {
			b.wait(rowOf("orders/1") + `.innerText.includes(` + quote(want) + `)`)
		}
		b.wait(rowOf("orders/1") + `.querySelector('.left').innerText.match(/^[12][0-9]s$/)`)
		b.wait(`document.getElementById('count').textContent === '1 hold'`)
		if err := lock.Release(); err != nil {
			t.Fatal(err)
		}
		other := holdfast.New(locks.Store(), &holdfast.Config{Holder: "worker-9"})
		defer other.Close()
		lock = acquire(t, other, "orders/1", nil)
		b.wait(rowOf("orders/1") + `.innerText.includes('worker-9')`)
		if err := lock.Release(); err != nil {
			t.Fatal(err)
		}
		b.wait(`!` + rowOf("orders/1"))
		b.checkFaults("")
	})

	t.Run("silent", func(t *testing.T) {
		b.t = t
		s := startSite(t, Options{})
		acquire(t, s.clients[0], "well", nil)
		acquire(t, s.clients[2], "ill", nil)
		b.open(s.URL + "/")
		b.wait(rowOf("ill") + ` && ` + rowOf("well"))
		s.ill.silent.Store(true)
		b.wait(rowOf("ill") + `.classList.contains('silent') && document.querySelector('#stores .silent').innerText.includes('no answer for ')`)
		if b.eval(rowOf("well")+`.classList.contains('silent')`) == "true" {
			t.Error("a store that answers is grey, too")
		}
		b.checkContrast("silent")

		// The page itself cannot be reached any more.
		s.Config.SetKeepAlivesEnabled(false)
		s.Listener.Close()
		s.CloseClientConnections()
		b.wait(`document.body.classList.contains('offline') && document.getElementById('status').textContent === 'Disconnected'`)
		b.checkContrast("offline")
		b.checkFaults("net::ERR_")
	})

	t.Run("break", func(t *testing.T) {
		b.t = t
		s := startSite(t, Options{AllowBreak: true, Token: testToken})
		lock := acquire(t, s.clients[1], "stuck", nil)
		b.call("Page.navigate", map[string]any{"url": strings.Replace(s.URL, "//", "//ada:"+testToken+"@", 1)}, nil)
		b.wait(rowOf("stuck"))
		b.eval(rowOf("stuck") + `.querySelector('button').focus()`)
		b.press("Enter") // all by keyboard
		b.wait(`document.getElementById('break').open && document.getElementById('question').innerText === 'Break the lock “stuck”?'`)
		if text := b.eval(`document.getElementById('break').innerText`); !strings.Contains(text, "worker-1.prod/4711") || !strings.Contains(text, fmt.Sprint(lock.Token())) {
			t.Errorf("the question does not name the holder: %s", text)
		}
		b.checkContrast("break")
		if b.eval(`document.activeElement.id`) != `"leave"` {
			t.Error("a second Enter breaks it")
		}
		if err := lock.Err(); err != nil {
			t.Fatalf("it is broken before the answer: %v", err)
		}
		b.eval(`document.getElementById('do').focus()`)
		b.press("Enter")
		b.wait(`!document.getElementById('break').open && !` + rowOf("stuck"))
		if _, err := s.clients[1].Lookup(context.Background(), "stuck"); !errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("after the break: %v", err)
		}
		b.checkFaults("")
	})

	t.Run("keyboard", func(t *testing.T) {
		b.t = t
		s := startSite(t, Options{})
		for i := range 5 {
			acquire(t, s.clients[i%2], fmt.Sprint("k", i), nil)
		}
		b.open(s.URL + "/")
		b.wait(`document.querySelectorAll('#locks tr').length === 5`)
		b.eval(`document.getElementById('filter').focus()`)
		b.press("K")
		b.press("3")
		b.wait(`document.getElementById('count').textContent === '1 of 5 holds'`)
		b.press("Escape")
		b.wait(`document.getElementById('count').textContent === '5 holds'`)
		b.eval(`document.querySelector('th.name button').focus()`)
		b.press("Enter")
		b.wait(`document.querySelector('th.name').ariaSort === 'descending' && document.querySelector('#locks .name').innerText.startsWith('k4')`)
		acquire(t, s.clients[0], "k9", nil)
		b.wait(`document.querySelector('#locks .name').innerText.startsWith('k9')`)
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
		b.open(s.URL + "/")
		b.wait(fmt.Sprintf(`document.querySelectorAll('#locks tr').length === %d`, len(hostile)))
		b.wait(rowOf(`rtlabc\u{202e}gnp.exe`))
		for _, width := range []int{390, 1440} {
			b.resize(width, 800)
			if b.eval(`document.documentElement.scrollWidth <= innerWidth`) != "true" {
				t.Errorf("a text makes the page wider than %d pixels", width)
			}
		}
		name := "script" + hostile["script"]
		b.eval(rowOf(name) + `.querySelector('button').click()`)
		b.wait(`document.getElementById('question').textContent.includes(` + quote(name) + `)`)
		if b.eval(`'harmed' in window || document.querySelectorAll('body img, body script').length > 0`) != "false" {
			t.Error("a text has become more than text")
		}
		b.checkFaults("")
	})

	t.Run("looks", func(t *testing.T) {
		b.t = t
		s := startSite(t, Options{AllowBreak: true})
		long := "migration/2026-11-add-an-index-to-the-table-of-orders-by-customer"
		for i := range 6 {
			acquire(t, s.clients[i%3], fmt.Sprint(long, i), &holdfast.Options{Limit: 3, TTL: time.Hour, Metadata: map[string]string{"why": "monthly run"}})
		}
		for _, dark := range []bool{false, true} {
			b.setDark(dark)
			b.open(s.URL + "/")
			b.wait(live + ` && document.querySelectorAll('#locks tr').length === 6 && document.querySelector('.finding')`)
			b.eval(`document.querySelectorAll('details').forEach(d => d.open = true)`)
			b.checkNames()
			b.checkContrast(fmt.Sprintf("dark: %v", dark))
			b.resize(390, 844)
			if b.eval(`document.documentElement.scrollWidth <= innerWidth`) != "true" {
				t.Error("it is wider than a telephone")
			}
			b.resize(1440, 900)
		}
		b.setDark(false)
		b.checkFaults("")
	})
}

// A browser is a Chromium without a window, which is driven over a pipe: no port, no library.
type browser struct {
	t       *testing.T
	to      *os.File
	from    *os.File
	lines   *bufio.Reader // of from
	session string
	id      int      // of the last command
	faults  []string // exceptions and errors on the console
}

// startBrowser starts a browser with one page.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil && program == "" {
			program = path
		}
	}
	if program == "" {
		t.Fatal("there is no Chromium: run scripts/needs")
	}
	fromUs, toBrowser, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromBrowser, toUs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--remote-debugging-pipe", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--disable-extensions",
		"--hide-scrollbars", "--user-data-dir="+t.TempDir())
	cmd.ExtraFiles = []*os.File{fromUs, toUs} // descriptors 3 and 4
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = fromUs.Close(), toUs.Close()
	b := &browser{t: t, to: toBrowser, from: fromBrowser, lines: bufio.NewReader(fromBrowser)}
	t.Cleanup(func() {
		b.session = ""
		b.call("Browser.close", nil, nil)
		_ = cmd.Wait() // it has ended as it was told, or by the end of the pipe
		_, _ = toBrowser.Close(), fromBrowser.Close()
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Accessibility"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

// call sends a command and waits for its result.
func (b *browser) call(method string, params any, result any) {
	b.t.Helper()
	if err := b.try(method, params, result); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
}

// try is call, but returns the error that the browser answers. It notes the faults that the browser
// has reported before.
func (b *browser) try(method string, params any, result any) error {
	b.t.Helper()
	b.id++
	command := map[string]any{"id": b.id, "method": method}
	if params != nil {
		command["params"] = params
	}
	if b.session != "" {
		command["sessionId"] = b.session
	}
	text, err := json.Marshal(command)
	if err == nil {
		_, err = b.to.Write(append(text, 0))
	}
	_ = b.from.SetReadDeadline(time.Now().Add(time.Minute))
	for err == nil {
		var m struct {
			ID     int
			Method string
			Params struct {
				Type  string
				Entry struct{ Level string }
			}
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		if text, err = b.lines.ReadBytes(0); err != nil {
			break
		}
		_ = json.Unmarshal(text[:len(text)-1], &m) // the parameters of some events are others
		switch {
		case m.ID == b.id && m.Error != nil:
			return errors.New(m.Error.Message)
		case m.ID == b.id && result != nil:
			return json.Unmarshal(m.Result, result)
		case m.ID == b.id:
			return nil
		case m.Method == "Runtime.exceptionThrown" || m.Method == "Runtime.consoleAPICalled" && m.Params.Type == "error" || m.Params.Entry.Level == "error":
			b.faults = append(b.faults, string(text))
		}
	}
	b.t.Fatalf("%s: no answer of the browser: %v", method, err)
	return nil
}

// open shows a page and waits until it has loaded.
func (b *browser) open(url string) {
	b.t.Helper()
	b.call("Page.navigate", map[string]any{"url": url}, nil)
	b.wait(`location.href === ` + quote(url) + ` && document.readyState === 'complete'`)
}

// eval returns the value of an expression in the page, as JSON.
func (b *browser) eval(expression string) string {
	b.t.Helper()
	value, err := b.evaluate(expression)
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

func (b *browser) evaluate(expression string) (string, error) {
	b.t.Helper()
	var result struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	err := b.try("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &result)
	if err == nil && result.ExceptionDetails != nil {
		err = errors.New(string(result.ExceptionDetails))
	}
	return string(result.Result.Value), err
}

// wait waits until an expression is true. A page that is being left has no context for a moment,
// which is an error: nothing is true then.
func (b *browser) wait(expression string) {
	b.t.Helper()
	began := time.Now()
	for {
		value, err := b.evaluate(`(() => { try { return !!(` + expression + `) } catch { return false } })()`)
		switch {
		case value == "true":
			return
		case time.Since(began) > time.Minute:
			b.t.Fatalf("not so within a minute: %s (%v)\nThe page begins with: %s", expression, err, b.eval(`document.body.innerText.slice(0, 1500)`))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// press presses a key.
func (b *browser) press(key string) {
	b.t.Helper()
	text := map[string]string{"Enter": "\r"}[key]
	if len(key) == 1 {
		text = key
	}
	b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": key, "text": text, "windowsVirtualKeyCode": map[string]int{"Enter": 13, "Tab": 9, "Escape": 27}[key]}, nil)
	b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key}, nil)
}

// resize makes the page so many pixels wide and high, as on a telephone if it is narrow.
func (b *browser) resize(width, height int) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 2, "mobile": width < 500}, nil)
}

func (b *browser) setDark(dark bool) {
	b.t.Helper()
	scheme := map[bool]string{false: "light", true: "dark"}[dark]
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// checkFaults fails the test if there was an exception or an error on the console, except those
// that contain the given text, and leaves the page.
func (b *browser) checkFaults(except string) {
	b.t.Helper()
	b.open("about:blank")
	for _, fault := range b.faults {
		if except == "" || !strings.Contains(fault, except) {
			b.t.Errorf("the console: %s", fault)
		}
	}
	b.faults = nil
}

// checkNames fails the test if a control has no name for those who cannot see it.
func (b *browser) checkNames() {
	b.t.Helper()
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name struct{ Value any }
		}
	}
	b.call("Accessibility.getFullAXTree", nil, &tree)
	n := 0
	for _, node := range tree.Nodes {
		switch node.Role.Value {
		case "link", "button", "textbox", "searchbox", "table", "navigation", "columnheader":
			n++
			if name := fmt.Sprint(node.Name.Value); !node.Ignored && strings.TrimSpace(strings.TrimSuffix(name, "<nil>")) == "" {
				b.t.Errorf("a %v has no name", node.Role.Value)
			}
		}
	}
	if n < 3 {
		b.t.Errorf("only %d controls were found", n)
	}
	if b.eval(`[...document.querySelectorAll('input')].filter(input => input.checkVisibility()).every(input => [...input.labels].some(label => label.checkVisibility()))`) != "true" {
		b.t.Error("a field has no label")
	}
}

// checkContrast fails the test if a text differs too little from what is behind it.
func (b *browser) checkContrast(what string) {
	b.t.Helper()
	faint := b.eval(`(() => {
		const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
		const color = text => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1); return canvas.getImageData(0, 0, 1, 1).data };
		const light = c => { const [r, g, b] = [0, 1, 2].map(i => c[i] / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b };
		const behind = node => { for (; node; node = node.parentElement) { const c = color(getComputedStyle(node).backgroundColor); if (c[3] === 255) return c } return [255, 255, 255] };
		const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), faint = {};
		let n = 0;
		while (walker.nextNode()) {
			const node = walker.currentNode.parentElement;
			if (!walker.currentNode.data.trim() || !node.checkVisibility() || ['SCRIPT', 'STYLE', 'NOSCRIPT'].includes(node.tagName)) continue;
			const a = light(color(getComputedStyle(node).color)), b = light(behind(node)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
			n++;
			if (ratio < 4.5) faint[walker.currentNode.data.trim().slice(0, 30) + ' in ' + node.tagName + '.' + node.className] = ratio;
		}
		if (n < 10) faint['too few texts'] = n;
		return faint;
	})()`)
	if faint != "{}" {
		b.t.Errorf("%s: texts with too little contrast: %s", what, faint)
	}
}

func quote(text string) string {
	data, _ := json.Marshal(text) // a string
	return string(data)
}
