package lockui

import (
	"cmp"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

var (
	//go:embed page.css
	styleSheet fragment

	//go:embed page.js
	script fragment

	//go:embed icon.svg
	icon []byte
)

func serveIcon(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "image/svg+xml")
	_, _ = w.Write(icon)
}

// A document is a page with what is around its content.
type document struct {
	title   string
	view    literal // which is marked in the navigation
	stream  string  // the URL of its updates, "" if it has none
	content fragment
}

func (p *page) write(w http.ResponseWriter, status int, d document) {
	nonce := rand.Text()
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'nonce-"+nonce+"'; script-src 'nonce-"+nonce+
		"'; connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	var m markup
	m.add(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>%s</title>
<link rel="icon" href="icon.svg" type="image/svg+xml">
`, d.title+" · Holdfast")
	if d.stream != "" {
		m.add(`<noscript><meta http-equiv="refresh" content="5"></noscript>` + "\n")
	}
	m.add("<style nonce=\"%s\">\n%s</style>\n</head>\n", nonce, styleSheet)
	m.add(`<body class="view-%s" data-stream="%s" data-now="%d">`+"\n", d.view, d.stream, time.Now().UnixMilli())
	m.add(`<a class="skip" href="#main">Skip to the content</a>` + "\n<header>\n")
	if d.view != "sign-in" {
		m.add(`<nav aria-label="Views">`)
		for _, link := range []struct{ view, path, text literal }{{"locks", "./", "Locks"}, {"stores", "stores", "Stores"}, {"events", "events", "Events"}} {
			current := literal("")
			if link.view == d.view {
				current = ` aria-current="page"`
			}
			m.add(`<a href="%s"%s>%s</a>`, link.path, current, link.text)
		}
		m.add("</nav>\n")
	}
	m.add(`<p class="status"><span id="status" role="status"></span> <span id="age" aria-hidden="true"></span></p>` + "\n")
	if p.session != "" && d.view != "sign-in" {
		m.add(`<form method="post" action="sign-out"><button class="plain">Sign out</button></form>` + "\n")
	}
	m.add("</header>\n<main id=\"main\" tabindex=\"-1\">\n%s</main>\n", d.content)
	if d.stream != "" {
		m.add("<script nonce=\"%s\">\n%s</script>\n", nonce, script)
	}
	m.add("</body>\n</html>\n")
	w.WriteHeader(status)
	_, _ = w.Write(m.Bytes()) // a browser that is gone needs no page
}

func (p *page) writeSignIn(w http.ResponseWriter, failure string) {
	var m markup
	m.add("<h1>Locks</h1>\n<form class=\"card\" method=\"post\" action=\"sign-in\">\n")
	if failure != "" {
		m.add("<p class=\"error\" role=\"alert\">%s</p>\n", failure)
	}
	m.add("<label for=\"token\">Token</label>\n" +
		"<input id=\"token\" name=\"token\" type=\"password\" autocomplete=\"current-password\" required autofocus>\n" +
		"<button>Sign in</button>\n</form>\n")
	p.write(w, http.StatusUnauthorized, document{title: "Sign in", view: "sign-in", content: m.fragment()})
}

// storeOf returns the store that a request names by its number.
func (p *page) storeOf(r *http.Request) (*store, error) {
	i, err := strconv.Atoi(r.FormValue("store"))
	if err != nil || i < 0 || i >= len(p.stores) {
		return nil, errNoStore
	}
	return p.stores[i], nil
}

// The columns by which locks are sorted.
var columns = []struct {
	key, class, title literal
	compare           func(a, b *row) int
}{
	{"name", "name", "Lock", func(a, b *row) int { return cmp.Compare(a.rec.Name, b.rec.Name) }},
	{"holder", "holder", "Holder", func(a, b *row) int { return cmp.Compare(a.rec.Holder, b.rec.Holder) }},
	{"since", "num since", "Held for", func(a, b *row) int { return a.since.Compare(b.since) }},
	{"left", "num left", "Left", func(a, b *row) int { return a.until.Compare(b.until) }},
	{"waiting", "num waiting", "Waiting", func(a, b *row) int { return cmp.Compare(b.rec.Waiting, a.rec.Waiting) }},
	{"token", "num token", "Token", func(a, b *row) int { return cmp.Compare(a.rec.Token, b.rec.Token) }},
	{"metadata", "meta", "Metadata", func(a, b *row) int {
		return cmp.Compare(lockview.FormatMetadata(a.rec.Metadata), lockview.FormatMetadata(b.rec.Metadata))
	}},
	{"store", "store", "Store", func(a, b *row) int { return cmp.Compare(a.store.index, b.store.index) }},
}

func (p *page) serveLocks(w http.ResponseWriter, r *http.Request) {
	p.refreshAll(r.Context())
	filter, order := r.FormValue("q"), cmp.Or(r.FormValue("sort"), "name")
	p.mu.Lock()
	content := p.locksHTML(filter, order, time.Now())
	stream := "stream?view=locks&from=" + p.sequenceText(p.sequence)
	p.mu.Unlock()
	p.write(w, http.StatusOK, document{title: "Locks", view: "locks", stream: stream, content: content})
}

// locksHTML returns the view of all locks. The caller holds p.mu.
func (p *page) locksHTML(filter, order string, now time.Time) fragment {
	rows := p.allRows()
	shown := slices.Clone(rows)
	if words := strings.ToLower(filter); words != "" {
		shown = slices.DeleteFunc(shown, func(r *row) bool { return !strings.Contains(strings.ToLower(r.text()), words) })
	}
	key, descending := strings.CutPrefix(order, "-")
	for _, c := range columns {
		if string(c.key) == key {
			slices.SortStableFunc(shown, c.compare)
		}
	}
	if descending {
		slices.Reverse(shown)
	}
	var m markup
	m.add("<h1 class=\"hidden\">Locks</h1>\n<ul id=\"strip\" class=\"strip\">%s</ul>\n", p.stripHTML(now))
	m.add("<form class=\"tools\" role=\"search\" action=\"./\">\n<label for=\"q\">Filter</label>\n"+
		"<input id=\"q\" name=\"q\" type=\"search\" value=\"%s\" placeholder=\"name, holder, metadata\" autocomplete=\"off\" autocapitalize=\"off\" spellcheck=\"false\">\n"+
		"<input id=\"sort\" name=\"sort\" type=\"hidden\" value=\"%s\">\n<noscript><button>Filter</button></noscript>\n"+
		"<output id=\"count\" for=\"q\">%s</output>\n</form>\n", filter, order, countText(len(shown), len(rows)))
	m.add(`<table id="locks">` + "\n<caption class=\"hidden\">Locks that are held or kept</caption>\n<thead><tr>")
	for _, c := range columns {
		if c.key == "store" && len(p.stores) == 1 {
			continue
		}
		next, sorted := string(c.key), literal("")
		if key == next {
			sorted = ` aria-sort="ascending"`
			if descending {
				sorted = ` aria-sort="descending"`
			} else {
				next = "-" + next
			}
		}
		m.add(`<th scope="col" class="%s"%s><a data-key="%s" href="?q=%s&amp;sort=%s">%s</a></th>`,
			c.class, sorted, c.key, url.QueryEscape(filter), next, c.title)
	}
	m.add("</tr></thead>\n<tbody>\n")
	for _, r := range shown {
		m.add("%s", p.rowHTML(r, now))
	}
	none := literal("")
	if len(shown) > 0 {
		none = " hidden"
	}
	empty := p.emptyText()
	text := empty
	if filter != "" && len(rows) > 0 {
		text = "No lock matches the filter."
	}
	m.add("</tbody>\n</table>\n<p id=\"none\" class=\"none\"%s data-empty=\"%s\">%s</p>\n", none, empty, text)
	return m.fragment()
}

// emptyText is what the page shows in place of locks if there are none.
func (p *page) emptyText() literal {
	switch {
	case slices.ContainsFunc(p.stores, func(s *store) bool { return s.canList() && !s.hasAnswered() }):
		return "No locks are known."
	case slices.ContainsFunc(p.stores, (*store).canList):
		return "Nothing is locked."
	case len(p.stores) > 1:
		return "No locks are known: these stores cannot list them."
	}
	return "No locks are known: this store cannot list them."
}

// countText returns how many locks are shown.
func countText(shown, all int) string {
	noun := "locks"
	if all == 1 {
		noun = "lock"
	}
	if shown == all {
		return grouped(all) + " " + noun
	}
	return grouped(shown) + " of " + grouped(all) + " " + noun
}

// grouped returns a number with its thousands apart.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// text is what a filter searches.
func (r *row) text() string {
	return strings.Join([]string{r.rec.Name, r.rec.Holder, lockview.FormatMetadata(r.rec.Metadata), r.store.name,
		lockview.Usage(r.rec), r.badge(), strconv.FormatInt(r.rec.Token, 10)}, "\n")
}

// badge is a word beside the name of a lock that is more, or less, than held by one.
func (r *row) badge() string {
	if r.rec.Kept {
		return "kept"
	}
	return lockview.Usage(r.rec)
}

// rowHTML returns a row of the table of locks. Without a time it has no text that changes by itself,
// which a script adds.
func (p *page) rowHTML(r *row, now time.Time) fragment {
	var m markup
	class := literal("")
	if !now.IsZero() && r.expiring(now) {
		class = ` class="expiring"`
	}
	m.add(`<tr data-id="%d" data-store="%d"%s><td class="name"><a href="lock?store=%d&amp;name=%s" title="%s">%s</a>`,
		r.id, r.store.index, class, r.store.index, url.QueryEscape(r.rec.Name), r.rec.Name, r.rec.Name)
	if badge := r.badge(); badge != "" {
		m.add(` <span class="badge">%s</span>`, badge)
	}
	holder := r.rec.Holder
	if n := len(r.rec.Others); n > 0 && r.rec.Kept {
		holder = fmt.Sprintf("%d kept", n+1)
	} else if n > 0 {
		holder += fmt.Sprintf(" and %d more", n)
	}
	m.add(`</td><td class="holder" title="%s">%s</td>`, holder, cmp.Or(holder, "–"))
	m.add(`<td class="num since" data-since="%d">%s</td>`, milliseconds(r.since), ageText(r.since, now))
	m.add(`<td class="num left" data-until="%d" data-lease="%d">%s</td>`, milliseconds(r.until), r.lease.Milliseconds(), leftText(r.until, now))
	waiting, token := "", "–"
	if r.rec.Waiting > 0 {
		waiting = grouped(r.rec.Waiting)
	}
	if r.rec.Token > 0 {
		token = strconv.FormatInt(r.rec.Token, 10)
	}
	metadata := shorten(lockview.FormatMetadata(r.rec.Metadata), 300)
	m.add(`<td class="num waiting">%s</td><td class="num token">%s</td><td class="meta" title="%s">%s</td>`, waiting, token, metadata, metadata)
	if len(p.stores) > 1 {
		m.add(`<td class="store" title="%s">%s</td>`, r.store.name, r.store.name)
	}
	m.add("</tr>\n")
	return m.fragment()
}

// shorten cuts a text.
func shorten(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// durationText is lockview.ShortDuration without fractions of a second, in which nothing changes.
func durationText(d time.Duration) string {
	if d < time.Second {
		return "<1s"
	}
	return lockview.ShortDuration(d)
}

func ageText(since, now time.Time) string {
	switch {
	case since.IsZero():
		return "–"
	case now.IsZero():
		return ""
	}
	return durationText(now.Sub(since))
}

func leftText(until, now time.Time) string {
	switch {
	case until.IsZero():
		return "no expiry"
	case now.IsZero():
		return ""
	}
	return durationText(until.Sub(now))
}

// stripHTML returns a line for each store. The caller holds p.mu.
func (p *page) stripHTML(now time.Time) fragment {
	var m markup
	for _, s := range p.stores {
		m.add(`<li data-store="%d" data-answered="%d" data-stale="%d" class="%s"><a href="stores#store-%d">%s</a> `,
			s.index, milliseconds(s.snapshot.Answered), p.staleMillis(s), s.state(now, p.Interval), s.index, s.name)
		held, kept, waiting := s.counts()
		var counts []string
		for _, c := range []struct {
			n    int
			text string
		}{{held, "held"}, {kept, "kept"}, {waiting, "waiting"}} {
			if c.n > 0 || c.text == "held" {
				counts = append(counts, grouped(c.n)+" "+c.text)
			}
		}
		switch {
		case !s.canList():
			m.add(`<span class="muted">cannot list its locks</span>`)
		case s.snapshot.Answered.IsZero() && s.snapshot.Failure() != nil:
			m.add(`<span class="silence">no answer</span>`)
		case s.snapshot.Answered.IsZero():
			m.add(`<span class="muted">is asked</span>`)
		default:
			m.add(`<span class="muted">%s</span> <span class="silence">no answer for <span data-since="%d">%s</span></span>`,
				strings.Join(counts, " · "), milliseconds(s.snapshot.Answered), ageText(s.snapshot.Answered, now))
		}
		if n := s.countFindings(doctor.Failure); n > 0 {
			m.add(` <a class="badge fail" href="stores#store-%d">%s</a>`, s.index, plural(n, "failure"))
		}
		if n := s.countFindings(doctor.Warning); n > 0 {
			m.add(` <a class="badge warn" href="stores#store-%d">%s</a>`, s.index, plural(n, "warning"))
		}
		m.add("</li>")
	}
	return m.fragment()
}

func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return grouped(n) + " " + noun
}

func (s *store) canList() bool { return s.client.Guarantees().List }

// hasAnswered reports whether the store has ever listed its locks.
func (s *store) hasAnswered() bool { return !s.snapshot.Answered.IsZero() }

func (s *store) isExamined() bool { return !s.examined.IsZero() }

// staleMillis is the age at which the script marks a store as silent.
func (p *page) staleMillis(s *store) int64 { return s.snapshot.StaleAfter(p.Interval).Milliseconds() }

// state is the class of a store. Without a time it leaves to the script whether the data is stale.
func (s *store) state(now time.Time, interval time.Duration) literal {
	_, stale := s.snapshot.Stale(now, interval)
	switch {
	case !s.canList():
		return "mute"
	case s.snapshot.Answered.IsZero(), stale && !now.IsZero():
		return "stale"
	}
	return "live"
}

func (s *store) counts() (held, kept, waiting int) {
	for _, r := range s.rows {
		if r.rec.Kept {
			kept++
		} else {
			held++
		}
		waiting += r.rec.Waiting
	}
	return held, kept, waiting
}

func (s *store) countFindings(severity doctor.Severity) (n int) {
	for _, f := range s.findings {
		if f.Severity == severity {
			n++
		}
	}
	return n
}

func (p *page) serveLock(w http.ResponseWriter, r *http.Request) {
	s, err := p.storeOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	p.refreshAll(r.Context())
	name := r.FormValue("name")
	p.mu.Lock()
	now := time.Now()
	content := p.lockHTML(s, name, now)
	broken, err := strconv.ParseInt(r.FormValue("broken"), 10, 64)
	isOver := err == nil && broken > 0 && s.isOver(name, broken, now, p.Interval)
	p.mu.Unlock()
	var m markup
	if isOver {
		m.add("<p class=\"notice\" role=\"status\">The hold with token %d is over.</p>\n", broken)
	}
	m.add("<h1 class=\"lock-name\">%s</h1>\n<div id=\"live\">%s</div>\n", name, content)
	p.write(w, http.StatusOK, document{title: name, view: "lock", content: m.fragment(),
		stream: fmt.Sprintf("stream?view=lock&store=%d&name=%s", s.index, url.QueryEscape(name))})
}

// isOver reports whether a store that answers has no hold with a token. The caller holds page.mu.
func (s *store) isOver(name string, token int64, now time.Time, interval time.Duration) bool {
	if _, stale := s.snapshot.Stale(now, interval); stale {
		return false
	}
	r := s.rows[name]
	return r == nil || !slices.ContainsFunc(lockview.EachHold(r.rec), func(hold holdfast.Record) bool { return hold.Token == token })
}

// lockHTML returns the holds of a lock, and its events. The caller holds p.mu.
func (p *page) lockHTML(s *store, name string, now time.Time) fragment {
	var m markup
	r := s.rows[name]
	m.add(`<p class="lead where %s" data-answered="%d" data-stale="%d">%s`,
		s.state(now, p.Interval), milliseconds(s.snapshot.Answered), p.staleMillis(s), s.name)
	var silence markup
	if !s.snapshot.Answered.IsZero() {
		silence.add(`no answer for <span data-since="%d">%s</span>`, milliseconds(s.snapshot.Answered), ageText(s.snapshot.Answered, now))
	}
	switch {
	case r == nil && s.snapshot.Answered.IsZero():
		m.add(` · not known</p>` + "\n")
	case r == nil:
		m.add(`<span class="answer"> · free</span><span class="silence"> · not known, %s</span></p>`+"\n", silence.fragment())
	default:
		m.add(` · %s`, cmp.Or(r.badge(), lockview.State(r.rec)))
		if r.rec.Waiting > 0 {
			m.add(" · %s waiting", grouped(r.rec.Waiting))
		}
		if silence.Len() > 0 {
			m.add(`<span class="silence"> · %s</span>`, silence.fragment())
		}
		m.add("</p>\n")
		for i, hold := range lockview.EachHold(r.rec) {
			since, until, lease := r.since, r.until, r.lease
			if i > 0 {
				lease = 0
				since, until = timesOf(hold, s.snapshot.At)
			}
			m.add("<dl class=\"card hold\">\n")
			addFacts(&m, hold, since, until, lease, now)
			if p.AllowBreak && hold.Token > 0 {
				m.add("<dt class=\"hidden\">Action</dt><dd class=\"action\"><a class=\"button danger\" href=\"%s\">Break…</a></dd>\n", breakURL(s, name, hold.Token))
			}
			m.add("</dl>\n")
		}
	}
	m.add("<h2>History</h2>\n")
	p.writeEvents(&m, "events one", 100, func(e event) bool { return e.store == s && (e.Name == name || e.Name == "") })
	return m.fragment()
}

// timesOf returns the beginning and the end of a hold by the clock of this host, in whole seconds,
// since they are estimates.
func timesOf(hold holdfast.Record, at time.Time) (since, until time.Time) {
	if age, ok := lockview.Age(hold); ok {
		since = at.Add(-age).Round(time.Second)
	}
	if lockview.HasExpiry(hold) {
		until = at.Add(hold.Remaining).Round(time.Second)
	}
	return since, until
}

// addFacts adds what is known of a hold.
func addFacts(m *markup, hold holdfast.Record, since, until time.Time, lease time.Duration, now time.Time) {
	switch {
	case hold.Kept:
		m.add("<dt>Holder</dt><dd>released, and kept until its time is over</dd>\n")
	default:
		m.add("<dt>Holder</dt><dd>%s</dd>\n", cmp.Or(hold.Holder, "not known"))
	}
	if !since.IsZero() {
		m.add("<dt>Held for</dt><dd><span data-since=\"%d\">%s</span>, since %s</dd>\n", milliseconds(since), ageText(since, now), clockHTML(since))
	}
	m.add("<dt>Left</dt><dd><span data-until=\"%d\" data-lease=\"%d\">%s</span>", milliseconds(until), lease.Milliseconds(), leftText(until, now))
	if !until.IsZero() && !hold.Kept {
		m.add(" unless renewed")
	}
	m.add("</dd>\n")
	if hold.Token > 0 {
		m.add("<dt>Token</dt><dd class=\"digits\">%d</dd>\n", hold.Token)
	}
	for _, key := range slices.Sorted(maps.Keys(hold.Metadata)) {
		m.add("<dt class=\"key\">%s</dt><dd>%s</dd>\n", key, hold.Metadata[key])
	}
}

// clockHTML returns a time of day, which a script turns into that of the viewer.
func clockHTML(t time.Time) fragment {
	var m markup
	m.add(`<time datetime="%s">%s</time>`, t.UTC().Format(time.RFC3339), t.UTC().Format("15:04:05 UTC"))
	return m.fragment()
}

func (p *page) serveEvents(w http.ResponseWriter, r *http.Request) {
	p.refreshAll(r.Context())
	p.mu.Lock()
	content := p.eventsHTML(time.Now())
	p.mu.Unlock()
	p.write(w, http.StatusOK, document{title: "Events", view: "events", stream: "stream?view=events",
		content: "<h1 class=\"hidden\">Events</h1>\n<div id=\"live\">" + content + "</div>\n"})
}

// eventsHTML returns the last events of all stores. The caller holds p.mu.
func (p *page) eventsHTML(time.Time) fragment {
	var m markup
	p.writeEvents(&m, "events", 300, func(event) bool { return true })
	return m.fragment()
}

// writeEvents adds the last events that match, newest first. The caller holds p.mu.
func (p *page) writeEvents(m *markup, class literal, most int, match func(event) bool) {
	m.add("<table class=\"%s\">\n<caption class=\"hidden\">Events, newest first</caption>\n<thead><tr><th scope=\"col\">Time</th><th scope=\"col\">Event</th><th scope=\"col\">Lock</th>"+
		"<th scope=\"col\">Holder</th><th scope=\"col\" class=\"num\">Token</th><th scope=\"col\">Store</th></tr></thead>\n<tbody>\n", class)
	for _, e := range slices.Backward(p.events) {
		if !match(e) {
			continue
		}
		if most--; most < 0 {
			break
		}
		if e.after.IsZero() {
			m.add(`<tr><td>%s</td>`, clockHTML(e.Time))
		} else {
			m.add(`<tr><td>%s–%s</td>`, clockHTML(e.after), clockHTML(e.Time))
		}
		if e.Name == "" {
			m.add(`<td class="about">%s</td><td class="name"></td><td class="holder"></td><td class="num token"></td>`, storeEvents[e.Event.Event])
		} else {
			token := "–"
			if e.Token > 0 {
				token = strconv.FormatInt(e.Token, 10)
			}
			m.add(`<td><span class="event %s">%s</span></td><td class="name"><a href="lock?store=%d&amp;name=%s">%s</a></td><td class="holder">%s</td><td class="num token">%s</td>`,
				e.Event.Event, e.Event.Event, e.store.index, url.QueryEscape(e.Name), e.Name, e.Holder, token)
		}
		m.add("<td class=\"store\">%s</td></tr>\n", e.store.name)
	}
	m.add("</tbody>\n</table>\n<p class=\"muted\">Events are seen while somebody watches. A lock that is taken and released within %s may be missed.</p>\n", p.Interval.String())
}

var storeEvents = map[string]string{
	eventWatched:  "watched from here on",
	eventUnseen:   "nobody watched",
	eventSilent:   "the store does not answer",
	eventAnswered: "the store answers again",
}

func (p *page) serveStores(w http.ResponseWriter, r *http.Request) {
	p.refreshAll(r.Context())
	for _, s := range p.stores {
		p.examine(s)
	}
	p.mu.Lock()
	content := p.storesHTML(time.Now())
	p.mu.Unlock()
	p.write(w, http.StatusOK, document{title: "Stores", view: "stores", stream: "stream?view=stores",
		content: "<h1 class=\"hidden\">Stores</h1>\n<div id=\"live\">" + content + "</div>\n"})
}

// storesHTML returns what is known of the stores. The caller holds p.mu.
func (p *page) storesHTML(now time.Time) fragment {
	var m markup
	for _, s := range p.stores {
		g := s.client.Guarantees()
		m.add("<section class=\"card store-card\" id=\"store-%d\">\n<h2><span class=\"where %s\" data-answered=\"%d\" data-stale=\"%d\">%s</span></h2>\n",
			s.index, s.state(now, p.Interval), milliseconds(s.snapshot.Answered), p.staleMillis(s), s.name)
		m.add("<dl>\n")
		held, kept, waiting := s.counts()
		if s.hasAnswered() {
			m.add("<dt>Locks</dt><dd>%s held, %s kept, %s waiting</dd>\n", grouped(held), grouped(kept), grouped(waiting))
		} else {
			m.add("<dt>Locks</dt><dd>unknown</dd>\n")
		}
		switch failure := s.snapshot.Failure(); {
		case !s.canList():
			m.add("<dt>Listing</dt><dd>this store cannot list its locks</dd>\n")
		case failure != nil:
			m.add("<dt>Listing</dt><dd class=\"error\">%s</dd>\n", shorten(failure.Error(), 500))
		case len(s.snapshot.Errs) > 0:
			m.add("<dt>Listing</dt><dd class=\"error\">%s</dd>\n", plural(len(s.snapshot.Errs), "damaged record"))
		}
		if s.hasAnswered() {
			m.add("<dt>Last answer</dt><dd><span data-since=\"%d\">%s</span> ago</dd>\n", milliseconds(s.snapshot.Answered), ageText(s.snapshot.Answered, now))
		}
		m.add("<dt>Excludes</dt><dd>%s</dd>\n<dt>Holder crashes</dt><dd>free %s</dd>\n<dt>Server restarts</dt><dd>holds %s</dd>\n<dt>Failover</dt><dd>holds %s</dd>\n",
			reaches[g.Scope], g.HolderCrash.String(), g.Restart.String(), g.Failover.String())
		order := literal("try at intervals, or are woken")
		if g.Fair {
			order = "served in order"
		}
		tokens := literal("none")
		if g.Fencing {
			tokens = "rise with every hold"
		}
		m.add("<dt>Waiters</dt><dd>%s</dd>\n<dt>Tokens</dt><dd>%s</dd>\n</dl>\n", order, tokens)
		s.addFindings(&m)
		m.add("</section>\n")
	}
	return m.fragment()
}

var reaches = map[driver.Scope]literal{
	driver.ScopeProcess: "the goroutines of one process",
	driver.ScopeHost:    "the processes of one host",
	driver.ScopeNetwork: "all that reach its servers",
}

// addFindings adds what an examination has found, the worst first.
func (s *store) addFindings(m *markup) {
	m.add("<div class=\"examined\">\n")
	defer m.add("</div>\n")
	switch {
	case s.examined.IsZero():
		m.add("<p class=\"muted\">The store is being examined.</p>\n")
		return
	case s.unfit != nil:
		m.add("<p class=\"error\">%s</p>\n", shorten(s.unfit.Error(), 500))
	}
	findings := slices.Clone(s.findings)
	slices.SortStableFunc(findings, func(a, b doctor.Finding) int { return cmp.Compare(b.Severity, a.Severity) })
	m.add("<ul class=\"findings\">\n")
	for _, f := range findings {
		m.add(`<li><span class="badge %s">%s</span><div><b>%s</b> `, literal(f.Severity.String()), f.Severity.String(), f.Check)
		if f.Server != "" {
			m.add("%s: ", f.Server)
		}
		m.add("%s", f.Found)
		if f.Want != "" {
			m.add("<br>Wanted: %s", f.Want)
		}
		if f.Remedy != "" {
			m.add("<br>Try: <code>%s</code>", f.Remedy)
		}
		m.add("</div></li>\n")
	}
	m.add("</ul>\n<p class=\"muted\">Examined at %s, reading only. <code>holdfast doctor</code> also tries a lock.</p>\n", clockHTML(s.examined))
}

// serveJSON lists all locks, one JSON object per line.
func (p *page) serveJSON(w http.ResponseWriter, r *http.Request) {
	p.refreshAll(r.Context())
	w.Header().Set("Content-Type", "application/x-ndjson")
	p.mu.Lock()
	type view struct {
		Store    string `json:"store"`
		Stale    bool   `json:"stale,omitempty"`
		Unlisted bool   `json:"unlisted,omitempty"`
		*lockview.View
	}
	var views []view
	now := time.Now()
	for _, r := range p.allRows() {
		_, stale := r.store.snapshot.Stale(now, p.Interval)
		lock := lockview.NewView(r.rec)
		views = append(views, view{Store: r.store.name, Stale: stale, View: &lock})
	}
	for _, s := range p.stores {
		_, stale := s.snapshot.Stale(now, p.Interval)
		switch { // Without a line it would look as if the store had no locks.
		case !s.canList():
			views = append(views, view{Store: s.name, Unlisted: true})
		case len(s.rows) == 0 && (stale || s.snapshot.Failure() != nil):
			views = append(views, view{Store: s.name, Stale: true})
		}
	}
	p.mu.Unlock()
	encoder := json.NewEncoder(w)
	for _, v := range views {
		if err := encoder.Encode(v); err != nil {
			return // the client is gone
		}
	}
}
