package s3store

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// The model searches all histories of a few clients of one name. Their requests are slow, lost, or
// served after they were given up. Records, sightings and the rule are those of the package. The
// model has the order of Store.update: read unless the record is known, apply the verb, write if the
// version is the same.
//
// Time passes in steps and has no end: all times are relative to now, and those that are past are
// alike. No client has a clock that another could read.
const (
	modelTTL    = 2 // steps, of an entry
	modelBelief = 1 // how long after its sending a client relies on an answer
	maxClients  = 3
)

type broken int

const (
	anyVersion broken = iota + 1
	cachedAnswer
	unwrittenGrant
)

// brokenModels leave out one rule each, of those that the model has of its own.
var brokenModels = map[broken]string{
	anyVersion:     "a write does not look at the version",
	cachedAnswer:   "a renewal is answered from what was read once",
	unwrittenGrant: "a grant counts before its write",
}

type phase uint8

const (
	idle    phase = iota
	reading       // the request to read is on its way
	read          // and so is its reply
	writing       // the request to write is on its way
	written       // and so is its reply
)

type verb uint8

const (
	acquire verb = iota
	renew
	release
)

// A client is comparable, as all of a world is: worlds are the keys of a map. A value is the number
// of a content.
type client struct {
	phase   phase
	verb    verb
	sent    int8 // when the verb began
	tries   int8 // how many verbs it may still begin
	owner   int8 // of its latest acquisition, 0 if it has none
	ending  bool // it has begun to release
	until   int8 // it relies on its lock until then
	token   int64
	value   int // of a read or a write that is under way
	version int // that the write is to replace
	changed bool
	answer  driver.Entry

	known bool
	seen  int     // the content that it has seen
	ends  [4]int8 // of its entries
}

type world struct {
	faults, gains int8
	object        int // the content, which is the version as well
	late          [2]struct{ value, version int }
	clients       [maxClients]client
	token         int64 // the greatest that a client has relied on
	released      int64 // a bit for each owner whose release was answered
}

type search struct {
	broken  broken
	clients int
	values  []record // by number; the first is that there is no object
	numbers map[string]int
	worlds  map[uint64]struct{} // by hash: a world has a kilobyte
	seed    maphash.Seed
	todo    []world
	fault   string
}

// number returns the number of a content.
func (s *search) number(rec record) int {
	key, err := json.Marshal(rec)
	if err != nil {
		panic(err)
	}
	n, ok := s.numbers[string(key)]
	if !ok {
		n = len(s.values)
		s.values, s.numbers[string(key)] = append(s.values, rec), n
	}
	return n
}

// sighting returns what a client has seen.
func (s *search) sighting(c *client) *sighting {
	rec := s.values[c.seen]
	rec.Entries = slices.Clone(rec.Entries)
	for i := range rec.Entries {
		e := &rec.Entries[i]
		e.Data.lasts, e.Until = e.Until, time.Duration(c.ends[i])
	}
	return &sighting{record: rec}
}

// see is the sight of a content.
func (s *search) see(c *client, value int) {
	rec, sight := s.values[value], s.sighting(c)
	rec.Entries = slices.Clone(rec.Entries)
	sight.see(rec, "", 0)
	c.known, c.seen = true, value
	clear(c.ends[:])
	for i, e := range sight.record.Entries {
		c.ends[i] = int8(max(e.Until, 0))
	}
}

// apply carries out the verb, and reports whether there is something to write.
func (s *search) apply(c *client) bool {
	sight := s.sighting(c)
	q := sight.queue()
	owner := fmt.Sprint(c.owner)
	switch c.verb {
	case acquire:
		req := driver.Request{Name: "n", Owner: owner, TTL: modelTTL, Place: modelTTL}
		own, _, err := q.Acquire(&req, data{Holder: "h"}, 0, &q.counter)
		if err != nil {
			own = driver.Entry{}
		}
		c.answer = own
	case renew:
		c.answer = q.renew(driver.RenewRequest{Owner: owner, TTL: modelTTL}, 0)
	case release:
		q.release(driver.ReleaseRequest{Owner: owner}, 0)
		c.answer = driver.Entry{State: driver.Lost}
	}
	next, changed := q.record(sight.record, 0)
	if changed {
		c.value, c.version = s.number(next), c.seen
	}
	return changed
}

// begin sends the next request of a verb: to read, or to write. What changes nothing is answered
// from a record that was read during the verb.
func (s *search) begin(w world, i int, current bool) {
	c := &w.clients[i]
	if !c.known {
		c.phase = reading
		s.reach(w)
		return
	}
	switch changed := s.apply(c); {
	case s.broken == cachedAnswer && c.verb == renew && c.answer.State == driver.Held && !current:
		s.note(&w, i)
	case changed:
		c.phase = writing
		if s.broken == unwrittenGrant && c.verb == acquire {
			s.note(&w, i)
			w.clients[i].phase = writing
		}
	case current:
		s.note(&w, i)
	default:
		c.known, c.phase = false, reading
	}
	s.reach(w)
}

// note is what a client makes of an answer.
func (s *search) note(w *world, i int) {
	c := &w.clients[i]
	c.phase = idle
	if c.verb == release {
		w.released |= 1 << c.owner
	}
	switch {
	case c.answer.State == driver.Lost:
		c.owner, c.ending, c.until, c.token = 0, false, 0, 0
	case c.answer.State == driver.Held && c.sent+modelBelief > 0:
		if c.token == 0 && c.answer.Token <= w.token {
			s.fault = "a token does not rise"
		}
		c.until, c.token = max(c.until, c.sent+modelBelief), c.answer.Token
		w.token = max(w.token, c.token)
	}
}

// write is the arrival of a write.
func (s *search) write(w *world, value, version int) bool {
	ok := w.object == version || s.broken == anyVersion
	if ok {
		w.object = value
	}
	return ok
}

func (s *search) reach(w world) {
	holders := 0
	for i := range w.clients {
		c := &w.clients[i]
		if c.until > 0 {
			holders++
		}
		if c.phase == idle {
			c.verb, c.sent, c.value, c.version, c.changed, c.answer = 0, 0, 0, 0, false, driver.Entry{}
		}
	}
	for _, e := range s.values[w.object].Entries {
		owner, err := strconv.Atoi(e.Owner)
		if err != nil {
			panic(err)
		}
		if w.released&(1<<owner) != 0 {
			s.fault = "an owner that was released has an entry"
		}
	}
	if holders > 1 {
		s.fault = "two clients rely on the lock"
	}
	hash := maphash.Comparable(s.seed, w)
	if _, ok := s.worlds[hash]; !ok {
		s.worlds[hash] = struct{}{}
		s.todo = append(s.todo, w)
	}
}

// pass lets time pass for a client, which has a clock of its own.
func (c *client) pass(clock bool) {
	for i := range c.ends {
		c.ends[i] = max(c.ends[i]-1, 0)
	}
	if clock {
		return
	}
	c.sent, c.until = max(c.sent-1, -modelBelief), max(c.until-1, 0)
}

func (s *search) expand(w world) {
	next := w
	for i := range next.clients {
		next.clients[i].pass(false)
	}
	s.reach(next)
	for i, l := range w.late {
		if l.value != 0 {
			next := w
			next.late[i].value, next.late[i].version = 0, 0
			s.write(&next, l.value, l.version)
			s.reach(next)
		}
	}
	for i := range s.clients {
		if w.gains > 0 {
			next := w
			next.gains--
			next.clients[i].pass(true)
			s.reach(next)
		}
		next := w
		c := &next.clients[i]
		switch c.phase {
		case idle:
			if c.tries == 0 {
				continue
			}
			c.tries--
			c.sent = 0
			if c.owner == 0 {
				c.verb, c.owner = acquire, int8(8*(i+1))+c.tries
				s.begin(next, i, false)
				continue
			}
			if c.verb = renew; !c.ending {
				s.begin(next, i, false)
			}
			c.verb, c.ending, c.until, c.token = release, true, 0, 0 // It relies on nothing from here on.
			s.begin(next, i, false)
		case reading:
			s.giveUp(w, i)
			c.phase, c.value = read, w.object
			s.reach(next)
		case read:
			s.see(c, c.value)
			s.begin(next, i, true)
		case writing:
			s.giveUp(w, i)
			c.phase, c.changed = written, !s.write(&next, c.value, c.version)
			s.reach(next)
		case written:
			s.giveUp(w, i)
			if c.changed {
				c.known = false
				s.begin(next, i, false)
				continue
			}
			s.see(c, c.value)
			s.note(&next, i)
			s.reach(next)
		}
	}
}

// giveUp is the end of a client's waiting for a reply. A write that is on its way may arrive later.
func (s *search) giveUp(w world, i int) {
	if w.faults == 0 {
		return
	}
	w.faults--
	c := w.clients[i]
	w.clients[i].phase, w.clients[i].known = idle, false
	s.reach(w)
	if c.phase == writing {
		w.late[w.faults].value, w.late[w.faults].version = c.value, c.version
		s.reach(w)
	}
}

func explore(b broken, clients, tries, faults, gains int) *search {
	w := world{faults: int8(faults), gains: int8(gains)}
	for i := range clients {
		w.clients[i].tries = int8(tries)
	}
	s := &search{
		broken: b, clients: clients, values: []record{{Name: "n"}}, numbers: map[string]int{}, worlds: map[uint64]struct{}{}, seed: maphash.MakeSeed(),
	}
	s.reach(w)
	for len(s.todo) > 0 && s.fault == "" {
		last := len(s.todo) - 1
		w := s.todo[last]
		s.todo = s.todo[:last]
		s.expand(w)
	}
	return s
}

// In every history at most one client relies on the lock, tokens rise, and a release that was answered
// has left nothing.
func TestRecordModel(t *testing.T) {
	t.Parallel()
	bounds := [][4]int{{2, 2, 1, 0}, {2, 2, 0, 1}, {3, 1, 1, 0}}
	if os.Getenv("TEST_WHOLE") != "" {
		bounds = append(bounds, [][4]int{{2, 2, 1, 1}, {3, 1, 2, 1}, {2, 2, 2, 0}, {2, 3, 0, 0}, {2, 3, 1, 0}}...)
	}
	for _, b := range bounds {
		s := explore(0, b[0], b[1], b[2], b[3])
		t.Logf("%d clients of %d verbs, %d faults, %d seconds gained: %d states", b[0], b[1], b[2], b[3], len(s.worlds))
		if s.fault != "" {
			t.Error(s.fault)
		}
	}
}

// The model finds a history in which something goes wrong once a rule is left out.
func TestBrokenRecordModels(t *testing.T) {
	t.Parallel()
	for b, what := range brokenModels {
		s := explore(b, 2, 3, 0, 0)
		t.Logf("%s: %s after %d states", what, s.fault, len(s.worlds))
		if s.fault == "" {
			t.Errorf("%s: nothing goes wrong", what)
		}
	}
}
