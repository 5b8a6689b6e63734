package oldqueue_test

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/oldqueue"
)

// This is an exhaustive check of the protocol between clients and a store that keeps the queue of a
// name. Every order of events is tried: requests are handled late, twice or never, replies and
// notices are read late or never, in any order; a client stops for any time, gives up, repeats and
// renews at any moment; holds and places run out, holds are broken, and the store falls back to an
// earlier state. The store is a [oldqueue.Queue].
//
// Time passes in ticks. A client counts a lease from the tick in which it sent the request, the
// store from that in which it handles it.
//
// What must hold:
//
//   - An exclusive hold that a client relies on is alone, and the limited ones are within
//     the limit. After a break or a fallback a client is excused until the deadline that it had.
//   - The token of an exclusive hold is above all those that clients relied on before, and that of
//     another hold above those of exclusive ones. No token is used twice.
//   - No hold is prolonged by the store's confirmation of another one.
//   - If nothing more is lost, every wait ends.

const (
	modelClients = 3
	placeTicks   = 2
	holdTicks    = 3
)

// A protocol is a way in which clients and a store work together, and the bounds of the search.
type protocol struct {
	name     string
	kinds    string // of each client: exclusive, shared, or a digit, its limit
	sends    int    // how many claims, refreshes and renewals are sent in all
	flights  int    // how many of a client's requests and replies are in flight, beside releases
	repeats  int    // how many requests are handled twice
	breaks   int
	back     bool // the store falls back once, to its state at any earlier moment
	blocks   bool // two tokens are requested, and holds are passed on within a client
	waits    bool // every wait ends, notices that are lost included
	handOver bool // at the beginning A has sent its release, and B is in the queue
	violates string

	fromReceipt    bool // a deadline counts from the receipt of the notice
	fromUnanswered bool // a deadline counts from the sending of a request without a reply
	afterGivingUp  bool // a client that has given up relies on a notice
	resendMakes    bool // a repetition may make a place
	claimTakes     bool // a repetition may take a free name
	passedOver     bool // a place may be notified and then passed over
	queuedCounts   bool // the reply to a renewal that the owner is in the queue prolongs a hold
	renewsAny      bool // a renewal does not name the token of the hold
	refreshOnly    bool // a refresh does not admit
	zeroIsFirst    bool // a release gives unused tokens back; without a number, all but the first
	countAsAsked   bool // a repetition is granted as many tokens as it requests
	unreserved     bool // the tokens of a block after the first are not reserved
}

var protocols = []protocol{
	{name: "two exclusive, one repeated", kinds: "XX", sends: 3, flights: 1, repeats: 1},
	{name: "two exclusive, two in flight", kinds: "XX", sends: 2, flights: 2},
	{name: "three exclusive", kinds: "XXX", sends: 1, flights: 1},
	{name: "hand-over", kinds: "XXX", sends: 2, flights: 1, repeats: 1, handOver: true},
	{name: "hand-over, two in flight", kinds: "XXX", sends: 2, flights: 2, handOver: true},
	{name: "hand-over, shared", kinds: "XSS", sends: 2, flights: 1, handOver: true},
	{name: "hand-over, limits", kinds: "X11", sends: 2, flights: 1, handOver: true},
	{name: "hand-over, fallback", kinds: "XXX", sends: 1, flights: 1, back: true, handOver: true},
	{name: "exclusive and shared", kinds: "XSS", sends: 0, flights: 1},
	{name: "limits", kinds: "222", sends: 0, flights: 1},
	{name: "exclusive and limits", kinds: "X11", sends: 0, flights: 1},
	{name: "break", kinds: "XX", sends: 2, flights: 1, breaks: 1},
	{name: "break, shared", kinds: "XS", sends: 2, flights: 1, breaks: 1},
	{name: "fallback", kinds: "XX", sends: 2, flights: 1, back: true},
	{name: "fallback, limits", kinds: "11", sends: 2, flights: 1, back: true},
	{name: "blocks", kinds: "XX", sends: 1, flights: 2, blocks: true},
	{name: "blocks and break", kinds: "XX", sends: 1, flights: 1, breaks: 1, blocks: true},
	{name: "every wait ends", kinds: "XX", sends: 1, flights: 1, waits: true},
	{name: "every wait ends, limits", kinds: "X11", sends: 0, flights: 1, waits: true},

	{name: "deadline from the receipt", kinds: "XXX", sends: 0, flights: 1, fromReceipt: true, violates: "two holders"},
	{name: "deadline from a request without a reply", kinds: "XXX", sends: 1, flights: 1, handOver: true, fromUnanswered: true, violates: "two holders"},
	{name: "notice counts after giving up", kinds: "XXX", sends: 0, flights: 1, afterGivingUp: true, violates: "two holders"},
	{name: "repetition makes a place", kinds: "XXX", sends: 1, flights: 1, handOver: true, resendMakes: true, violates: "token"},
	{name: "repetition takes a free name", kinds: "XXX", sends: 2, flights: 1, handOver: true, claimTakes: true, violates: "token"},
	{name: "repetition takes a free name after a break", kinds: "XX", sends: 2, flights: 2, breaks: 1, claimTakes: true, renewsAny: true, violates: "prolonged"},
	{name: "notified and passed over", kinds: "XXX", sends: 0, flights: 1, passedOver: true, violates: "two holders"},
	{name: "notified and passed over, limits", kinds: "111", sends: 0, flights: 1, passedOver: true, violates: "limits"},
	{name: "queued prolongs", kinds: "XX", sends: 1, flights: 1, back: true, renewsAny: true, queuedCounts: true, violates: "with token 0"},
	{name: "renewal without a token", kinds: "XX", sends: 1, flights: 1, back: true, renewsAny: true, violates: "with token 3"},
	{name: "refresh does not admit", kinds: "XX", sends: 0, flights: 1, waits: true, refreshOnly: true, violates: "waits for ever"},
	{name: "0 is the first", kinds: "XX", sends: 1, flights: 2, blocks: true, zeroIsFirst: true, violates: "token"},
	{name: "repetition is granted what it requests", kinds: "XX", sends: 1, flights: 1, blocks: true, countAsAsked: true, violates: "token"},
	{name: "block not reserved", kinds: "XX", sends: 0, flights: 1, blocks: true, unreserved: true, violates: "token"},
}

// The protocol holds, and the search finds a history of each broken variant.
func TestProtocolByExhaustion(t *testing.T) {
	for _, p := range protocols {
		t.Run(strings.ReplaceAll(p.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			m := model{protocol: p}
			m.explore()
			switch {
			case p.violates == "" && m.found != "":
				t.Errorf("%s, after %d states:\n%s", m.found, len(m.parents), m.history())
			case p.violates == "":
				t.Logf("%d states", len(m.parents))
			case m.found == "":
				t.Errorf("the broken variant is not found in %d states", len(m.parents))
			case !strings.Contains(m.found, p.violates):
				t.Errorf("%s, want %q, after %d states:\n%s", m.found, p.violates, len(m.parents), m.history())
			default:
				t.Logf("%s, after %d states:\n%s", m.found, len(m.parents), m.history())
			}
		})
	}
}

// A state is all that matters for what can happen next. Times are the ticks that are left.
type state struct {
	clients  [modelClients]client
	queue    [modelClients]entry
	earlier  [modelClients]entry // the state to which the store falls back
	fallback fallback
	last     uint8 // the counter of tokens, which is a clock and does not fall back
	breaks   uint8
	repeats  uint8
	sends    uint8
	used     uint8 // the greatest token that a client relied on
	usedX    uint8 // the greatest of an exclusive hold
	messages [10]message
}

type client struct {
	phase   phase
	acked   uint8 // until when the place lasts at least
	token   uint8 // the first of the hold
	count   uint8
	passed  uint8 // how often the hold was passed on
	left    uint8 // until the deadline
	excused uint8 // after a fallback
}

type entry struct{ owner, token, count, until uint8 } // owner counts from 1

type message struct {
	kind   kind
	client uint8
	age    uint8 // of the request
	token  uint8
	count  uint8
	actual uint8 // the token that the store had renewed, which the client cannot see
}

type (
	phase    uint8
	fallback uint8
	kind     uint8
)

const (
	idle phase = iota
	waiting
	holding
	done
)

const (
	nothingSaved fallback = iota
	saved
	fallenBack
)

const (
	none kind = iota
	acquire
	claim
	refresh
	renew
	release
	granted // replies
	queued
	refreshed
	renewed
	renewedPlace
	lost
	notice
)

var kindNames = [...]string{"", "acquire", "claim", "refresh", "renewal", "release", "granted", "queued",
	"a hold since", "renewed", "queued", "lost", "notice"}

type model struct {
	protocol
	seed     maphash.Seed
	seen     map[uint64]struct{} // hashes of states: two of a million are the same with a chance of 2^-25
	parents  []int32
	ordinals []uint8 // the step that led from the parent
	todo     []state // the states that have not been expanded, the last of parents
	ordinal  uint8   // of the next step of the state that is expanded
	wrong    string  // about the step that is being taken
	found    string  // the first that was wrong, about the last of parents
	tracing  int     // the ordinal of the step to be described, if take is set
	take     func(state)
	text     string
	queue    oldqueue.Queue[struct{}] // reused
}

func (m *model) start() (s state) {
	if m.handOver {
		s.clients[0].phase = done
		s.clients[1] = client{phase: waiting, acked: placeTicks}
		s.queue[0] = entry{owner: 1, token: 1, count: 1, until: holdTicks}
		s.queue[1] = entry{owner: 2, count: 1, until: placeTicks}
		s.send(message{kind: release, client: 0, token: 1})
		s.last, s.used, s.usedX = 1, 1, 1
	}
	return s
}

func (m *model) explore() {
	m.seed, m.seen = maphash.MakeSeed(), map[uint64]struct{}{}
	start := m.start()
	m.todo, m.parents, m.ordinals = []state{start}, []int32{-1}, []uint8{0}
	for next := 0; next < len(m.parents) && m.found == ""; next++ {
		s := m.todo[0]
		m.todo = m.todo[1:]
		m.ordinal = 0
		m.expand(s, int32(next))
	}
}

// history returns the steps that led to what is wrong, which are the last one that was reached.
func (m *model) history() string {
	var ordinals []uint8
	for i := int32(len(m.parents) - 1); i > 0; i = m.parents[i] {
		ordinals = append(ordinals, m.ordinals[i])
	}
	slices.Reverse(ordinals)
	s := m.start()
	var text strings.Builder
	replay := model{protocol: m.protocol}
	for i, ordinal := range ordinals {
		var next state
		replay.tracing, replay.ordinal = int(ordinal), 0
		replay.take = func(reached state) { next = reached }
		replay.expand(s, 0)
		fmt.Fprintf(&text, "%4d. %s\n", i+1, replay.text)
		s = next
	}
	return text.String()
}

// reach notes a state to which a step leads.
func (m *model) reach(parent int32, s state, format string, args ...any) {
	if m.found != "" {
		return
	}
	ordinal := m.ordinal
	m.ordinal++
	slices.SortFunc(s.messages[:], func(a, b message) int { return cmp.Compare(b.rank(), a.rank()) })
	if m.take != nil {
		if int(ordinal) == m.tracing {
			m.text = fmt.Sprintf(format, args...)
			m.take(s)
		}
		return
	}
	if m.wrong == "" {
		m.checkHolders(&s)
	}
	hash := maphash.Comparable(m.seed, s)
	if _, seen := m.seen[hash]; seen && m.wrong == "" {
		return
	}
	if m.waits && m.wrong == "" {
		m.checkWaits(s)
	}
	m.found = m.wrong
	m.seen[hash] = struct{}{}
	m.parents, m.ordinals, m.todo = append(m.parents, parent), append(m.ordinals, ordinal), append(m.todo, s)
}

// lease is how long the entry lasts that a reply confirms.
func (a message) lease() uint8 {
	if a.kind == granted || a.kind == renewed || a.kind == renewedPlace || a.kind == lost {
		return holdTicks
	}
	return placeTicks
}

func (a message) String() string {
	switch {
	case a.token == 0:
		return kindNames[a.kind]
	case a.count > 1:
		return fmt.Sprintf("%s (tokens %d to %d)", kindNames[a.kind], a.token, a.token+a.count-1)
	}
	return fmt.Sprintf("%s (token %d)", kindNames[a.kind], a.token)
}

func (a message) rank() uint64 {
	return uint64(a.kind)<<40 | uint64(a.client)<<32 | uint64(a.age)<<24 | uint64(a.token)<<16 | uint64(a.count)<<8 | uint64(a.actual)
}

// expand takes every step that is possible in s.
func (m *model) expand(s state, from int32) {
	for c := range len(m.kinds) {
		m.clientSteps(s, from, c)
	}
	for i, msg := range s.messages {
		switch {
		case msg.kind == none:
			continue
		case msg.kind <= release:
			next := s
			next.messages[i] = message{}
			handled := m.handle(&next, msg)
			m.reach(from, next, "the store handles %v of %c%v", msg, name(msg.client), handled)
			if int(s.repeats) < m.repeats && msg.kind != acquire {
				again := s
				again.repeats++
				handled := m.handle(&again, msg)
				m.reach(from, again, "the store handles %v of %c, which will arrive again%v", msg, name(msg.client), handled)
			}
			if m.passedOver && msg.kind == release {
				m.passOver(s, from, i)
			}
		default:
			next := s
			next.messages[i] = message{}
			m.read(&next, msg)
			m.reach(from, next, "%c reads %v, age %d", name(msg.client), msg, msg.age)
		}
		if m.waits && msg.kind != release {
			next := s
			next.messages[i] = message{}
			m.reach(from, next, "%v of %c is lost", msg, name(msg.client))
		}
	}
	m.storeSteps(s, from)
	m.tick(&s)
	m.reach(from, s, "a tick passes")
}

func name[T ~int | ~uint8](client T) rune { return 'A' + rune(client) }

func (m *model) clientSteps(s state, from int32, c int) {
	own := s.clients[c]
	var inFlight []int
	for i, msg := range s.messages {
		if msg.kind != none && int(msg.client) == c && msg.kind != release && msg.kind != notice {
			inFlight = append(inFlight, i)
		}
	}
	send := func(k kind, token uint8) {
		next := s
		if k != acquire {
			next.sends++
		}
		if k != renew && (k == acquire || m.fromUnanswered) {
			next.clients[c].acked = placeTicks
		}
		if k == acquire {
			next.clients[c].phase = waiting
		}
		msg := message{kind: k, client: uint8(c), token: token}
		if len(inFlight) < m.flights {
			next.send(msg)
			m.reach(from, next, "%c sends %v", name(c), msg)
			return
		}
		for _, i := range inFlight {
			other := next
			other.messages[i] = msg
			m.reach(from, other, "%c sends %v; its %v is lost", name(c), msg, s.messages[i])
		}
	}
	switch own.phase {
	case idle:
		if c == 0 || m.kinds[c-1] != m.kinds[c] || s.clients[c-1].phase != idle { // those of a kind are alike
			send(acquire, 0)
		}
	case waiting:
		if int(s.sends) < m.sends {
			send(claim, 0)
			send(refresh, 0)
		}
		next := s
		next.end(c, 0, m)
		m.reach(from, next, "%c gives up", name(c))
	case holding:
		if int(s.sends) < m.sends {
			send(renew, own.token)
		}
		next := s
		next.end(c, own.token+own.passed, m)
		m.reach(from, next, "%c releases, last token %d", name(c), own.token+own.passed)
		if own.passed+1 < own.count {
			next := s
			next.clients[c].passed++
			m.use(&next, c)
			m.reach(from, next, "%c passes the hold on, token %d", name(c), own.token+own.passed+1)
		}
	}
}

// send puts a message among those that are in flight. Where there is no room it is lost.
func (s *state) send(msg message) {
	if i := slices.Index(s.messages[:], message{}); i >= 0 && !slices.Contains(s.messages[:], msg) {
		s.messages[i] = msg
	}
}

// end ends the part of a client, which releases. Nothing that it reads has a meaning any more,
// except that a hold which comes too late is released.
func (s *state) end(c int, lastToken uint8, m *model) {
	s.clients[c] = client{phase: done, acked: s.clients[c].acked}
	for i, msg := range s.messages {
		reply := msg.kind > release && !m.blocks && !m.afterGivingUp
		if int(msg.client) == c && (reply || msg.kind == refresh || msg.kind == renew) {
			s.messages[i] = message{}
		}
	}
	if !m.afterGivingUp {
		s.clients[c].acked = 0
	}
	s.send(message{kind: release, client: uint8(c), token: lastToken})
}

// load makes the queue of a state ready for a verb.
func (m *model) load(entries *[modelClients]entry) {
	m.queue = oldqueue.Queue[struct{}]{}
	for _, e := range entries {
		if e.owner == 0 {
			break
		}
		full := m.newEntry(int(e.owner - 1))
		full.Token, full.Tokens, full.Until = int64(e.token), int32(e.count), time.Duration(e.until)
		m.queue.Append(&full)
	}
}

var owners = [...]string{"A", "B", "C"}

func (m *model) newEntry(c int) oldqueue.Entry[struct{}] {
	e := oldqueue.Entry[struct{}]{Owner: owners[c], Tokens: 1}
	if m.blocks {
		e.Tokens = 2
	}
	switch m.kinds[c] {
	case 'X':
	case 'S':
		e.Limit = -1
	default:
		e.Limit = int32(m.kinds[c] - '0')
	}
	return e
}

// edit replaces the entries of the queue, which is what broken stores do.
func (m *model) edit(f func([]oldqueue.Entry[struct{}]) []oldqueue.Entry[struct{}]) {
	var entries []oldqueue.Entry[struct{}]
	for e := range m.queue.All() {
		entries = append(entries, *e)
	}
	m.queue = oldqueue.Queue[struct{}]{}
	for _, e := range f(entries) {
		m.queue.Append(&e)
	}
}

func (m *model) save(entries *[modelClients]entry) {
	*entries = [modelClients]entry{}
	i := 0
	for e := range m.queue.All() {
		entries[i] = entry{e.Owner[0] - 'A' + 1, uint8(e.Token), uint8(e.Tokens), uint8(e.Until)}
		i++
	}
}

// handle has the store handle a request, and returns the reply and notices that it sends.
func (m *model) handle(s *state, msg message) sent {
	m.load(&s.queue)
	counter := oldqueue.Counter{Last: int64(s.last)}
	reply := message{kind: lost, client: msg.client, age: msg.age}
	var own *oldqueue.Entry[struct{}]
	var notices []oldqueue.Entry[struct{}]
	owner := owners[msg.client]
	switch msg.kind {
	case acquire, claim:
		req := oldqueue.Request[struct{}]{
			Entry: m.newEntry(int(msg.client)), TTL: holdTicks, Queue: placeTicks, Claim: msg.kind == claim,
		}
		if msg.kind == claim && m.resendMakes {
			req.Claim = false
		}
		if msg.kind == claim && m.claimTakes && m.entryOf(owner) == nil {
			req.Claim, req.Queue = false, 0
		}
		if msg.kind == acquire && m.countAsAsked {
			req.Entry.Tokens = 1
		}
		own, notices, _ = m.queue.Acquire(req, 0, &counter)
		switch {
		case own == nil:
		case own.Token == 0:
			reply.kind = queued
		default:
			reply.kind, reply.token, reply.count = granted, uint8(own.Token), uint8(own.Tokens)
			if m.countAsAsked {
				reply.count = uint8(req.Entry.Tokens)
			}
		}
	case refresh, renew:
		ttl := time.Duration(placeTicks)
		if msg.kind == renew {
			ttl = holdTicks
		}
		token := int64(msg.token)
		if m.renewsAny {
			token = 0
		}
		if m.refreshOnly {
			own = m.refreshWithoutAdmission(owner, ttl)
		} else {
			own, notices = m.queue.Renew(owner, token, ttl, 0, &counter)
		}
		switch {
		case own == nil:
		case msg.kind == refresh && own.Token == 0:
			reply.kind = queued
		case msg.kind == refresh:
			reply.kind = refreshed
		case own.Token == 0:
			reply.kind = renewedPlace
		default:
			reply.kind = renewed
		}
		reply.token = msg.token
		if own != nil {
			reply.actual = uint8(own.Token)
		}
	case release:
		if m.zeroIsFirst {
			m.lower(owner, msg.token, &counter)
		}
		_, notices = m.queue.Release(owner, 0, 0, &counter)
		reply.kind = none
	}
	m.save(&s.queue)
	s.last = uint8(counter.Last)
	if m.unreserved {
		for e := range m.queue.All() {
			s.last = uint8(e.Token)
		}
	}
	s.notify(notices)
	useless := reply.kind != none && !m.waits && (reply.kind == lost || reply.age >= reply.lease())
	if reply.kind != none && !useless && (s.clients[msg.client].phase != done || m.blocks && reply.kind == granted) {
		s.send(reply)
	}
	return sent{reply, notices}
}

// A sent is what the store has sent at once.
type sent struct {
	reply   message
	notices []oldqueue.Entry[struct{}]
}

func (s sent) String() string {
	text := ""
	if s.reply.kind != none {
		text = ": " + s.reply.String()
	}
	for _, e := range s.notices {
		text += fmt.Sprintf(", notice to %s (token %d)", e.Owner, e.Token)
	}
	return text
}

func (s *state) notify(admitted []oldqueue.Entry[struct{}]) {
	for _, e := range admitted {
		s.send(message{kind: notice, client: e.Owner[0] - 'A', token: uint8(e.Token), count: uint8(e.Tokens)})
	}
}

// refreshWithoutAdmission is the renewal of a broken store.
func (m *model) refreshWithoutAdmission(owner string, ttl time.Duration) *oldqueue.Entry[struct{}] {
	own := m.entryOf(owner)
	if own != nil {
		own.Until = max(own.Until, ttl)
	}
	return own
}

func (m *model) entryOf(owner string) *oldqueue.Entry[struct{}] {
	for e := range m.queue.All() {
		if e.Owner == owner && e.Until > 0 {
			return e
		}
	}
	return nil
}

// lower is what a broken store does at a release: it gives back the tokens after the last that was
// used.
func (m *model) lower(owner string, last uint8, counter *oldqueue.Counter) {
	for e := range m.queue.All() {
		if e.Owner == owner && e.Token != 0 && e.Until > 0 && counter.Last == e.Token+int64(e.Tokens)-1 {
			counter.Last = max(e.Token, int64(last))
		}
	}
}

// passOver is the release of a broken store: it admits the first place, notifies it, finds that no
// client reads its notices, and admits the next one in its stead.
func (m *model) passOver(s state, from int32, i int) {
	msg := s.messages[i]
	s.messages[i] = message{}
	m.load(&s.queue)
	first := m.queue.First()
	if first == nil || first.Until == 0 || first.Owner == owners[msg.client] {
		return
	}
	passed := *first
	m.edit(func(entries []oldqueue.Entry[struct{}]) []oldqueue.Entry[struct{}] {
		return slices.DeleteFunc(entries, func(e oldqueue.Entry[struct{}]) bool { return e.Owner == passed.Owner })
	})
	counter := oldqueue.Counter{Last: int64(s.last) + 1}
	_, notices := m.queue.Release(owners[msg.client], 0, 0, &counter)
	if len(notices) == 0 {
		return
	}
	passed.Token, passed.Tokens = int64(s.last)+1, 1
	s.notify([]oldqueue.Entry[struct{}]{passed})
	passed.Token = 0
	m.edit(func(entries []oldqueue.Entry[struct{}]) []oldqueue.Entry[struct{}] {
		holds := 0
		for holds < len(entries) && entries[holds].Token != 0 {
			holds++
		}
		return slices.Insert(entries, holds, passed)
	})
	m.save(&s.queue)
	s.last = uint8(counter.Last)
	s.notify(notices)
	m.reach(from, s, "the store handles release of %c, notifies %s and passes over it", name(msg.client), passed.Owner)
}

// read has a client read a reply or a notice.
func (m *model) read(s *state, msg message) {
	c := int(msg.client)
	own := &s.clients[c]
	left := msg.lease() - min(msg.age, msg.lease())
	switch own.phase {
	case waiting:
		switch msg.kind {
		case granted:
			m.believe(s, c, msg, left)
		case notice:
			if m.fromReceipt {
				own.acked = placeTicks
			}
			m.believe(s, c, msg, own.acked)
		case queued, refreshed:
			own.acked = max(own.acked, left)
		case lost:
			s.end(c, 0, m)
		}
	case holding:
		switch {
		case msg.kind == granted && msg.token != own.token, msg.kind == lost && msg.token != 0, msg.kind == renewedPlace && !m.queuedCounts:
			s.end(c, own.token+own.passed, m)
		case msg.kind == granted:
			m.prolong(own, msg.token, left)
		case msg.kind == renewed, msg.kind == renewedPlace:
			m.prolong(own, msg.actual, left)
		}
	case done:
		switch {
		case msg.kind == notice && m.afterGivingUp:
			m.believe(s, c, msg, own.acked)
		case msg.kind == notice, msg.kind == granted:
			s.send(message{kind: release, client: uint8(c)})
		}
	}
}

func (m *model) prolong(own *client, actual, left uint8) {
	if left > own.left && own.token != actual {
		m.wrong = fmt.Sprintf("the hold with token %d is prolonged by that with token %d", own.token, actual)
	}
	own.left = max(own.left, left)
}

// believe makes a client rely on a hold, unless its deadline has passed.
func (m *model) believe(s *state, c int, msg message, left uint8) {
	if left == 0 {
		s.end(c, 0, m)
		return
	}
	own := &s.clients[c]
	own.phase, own.token, own.count, own.passed, own.left, own.acked = holding, msg.token, msg.count, 0, left, 0
	m.use(s, c)
}

// use notes that a client relies on its present token.
func (m *model) use(s *state, c int) {
	own := &s.clients[c]
	if own.excused > 0 {
		return
	}
	token, above := own.token+own.passed, s.usedX
	if m.kinds[c] == 'X' || m.blocks {
		above = s.used
	}
	if token <= above {
		m.wrong = fmt.Sprintf("%c relies on token %d after token %d", name(c), token, above)
	}
	s.used = max(s.used, token)
	if m.kinds[c] == 'X' {
		s.usedX = max(s.usedX, token)
	}
}

// checkHolders checks what clients rely on at one time.
func (m *model) checkHolders(s *state) {
	holders, exclusive, limited, most := 0, 0, 0, 0
	for c, own := range s.clients {
		if own.phase != holding || own.excused > 0 {
			continue
		}
		holders++
		switch kind := m.kinds[c]; kind {
		case 'X':
			exclusive++
		case 'S':
		default:
			limited++
			most = max(most, int(kind-'0'))
		}
	}
	switch {
	case exclusive > 0 && holders > 1:
		m.wrong = "two holders, of which one is exclusive"
	case limited > most:
		m.wrong = fmt.Sprintf("the limits of the holders are %d at most, and they are %d", most, limited)
	}
}

// storeSteps takes the steps that a store takes without a request.
func (m *model) storeSteps(s state, from int32) {
	if int(s.breaks) < m.breaks {
		next := s
		next.breaks++
		m.load(&next.queue)
		counter := oldqueue.Counter{Last: int64(next.last)}
		if ended, notices := m.queue.Break(0, 0, &counter); ended != nil {
			for _, e := range ended {
				next.excuse(int(e.Owner[0] - 'A'))
			}
			m.save(&next.queue)
			next.last = uint8(counter.Last)
			next.notify(notices)
			m.reach(from, next, "the holds are broken")
		}
	}
	if m.back && s.fallback == nothingSaved && s.queue[0].owner != 0 {
		next := s
		next.fallback, next.earlier = saved, s.queue
		m.reach(from, next, "the store will fall back to this state")
	}
	if m.back && s.fallback == saved && s.queue != s.earlier {
		next := s
		next.fallback, next.queue, next.earlier = fallenBack, s.earlier, [modelClients]entry{}
		for c := range next.clients {
			next.excuse(c)
		}
		m.reach(from, next, "the store falls back")
	}
}

// excuse lets a client rely on what the store has confirmed to it until now.
func (s *state) excuse(c int) {
	own := &s.clients[c]
	own.excused = max(own.left, own.acked)
	for _, msg := range s.messages {
		if int(msg.client) == c && msg.kind > release && msg.kind != notice && msg.kind != lost {
			own.excused = max(own.excused, msg.lease()-min(msg.age, msg.lease()))
		}
	}
}

func (m *model) tick(s *state) {
	down := func(ticks *uint8) { *ticks -= min(*ticks, 1) }
	for c := range s.clients {
		own := &s.clients[c]
		down(&own.acked)
		down(&own.excused)
		if own.phase == holding && own.left == 1 {
			*own = client{phase: done, excused: own.excused}
		}
		down(&own.left)
	}
	for i := range s.queue {
		down(&s.queue[i].until)
		down(&s.earlier[i].until)
	}
	for i := range s.messages {
		if msg := &s.messages[i]; msg.kind != none && msg.kind != notice && msg.kind != release {
			msg.age = min(msg.age+1, holdTicks)
			if msg.kind > release && msg.age >= msg.lease() && !m.waits {
				*msg = message{} // it is as if the reply were lost, and the client gave up
			}
		}
	}
}

// checkWaits checks that every wait ends if nothing more is lost: all messages arrive, holders
// release, and clients that wait refresh their places once a tick, and claim when a refresh shows a
// hold.
func (m *model) checkWaits(s state) {
	quiet := *m // without the search
	for range 8 {
		for busy := true; busy; {
			busy = false
			for _, msg := range s.messages {
				if msg.kind == none {
					continue
				}
				i := slices.Index(s.messages[:], msg)
				if i < 0 { // its client has given up meanwhile
					continue
				}
				s.messages[i], busy = message{}, true
				if msg.kind <= release {
					quiet.handle(&s, msg)
					continue
				}
				quiet.read(&s, msg)
				if msg.kind == refreshed && s.clients[msg.client].phase == waiting {
					s.send(message{kind: claim, client: msg.client})
				}
			}
			for c, own := range s.clients {
				if own.phase == holding {
					s.end(c, 0, &quiet)
					busy = true
				}
			}
		}
		waits := false
		quiet.tick(&s)
		for c, own := range s.clients {
			if own.phase == waiting {
				waits = true
				s.send(message{kind: refresh, client: uint8(c)})
			}
		}
		if !waits {
			return
		}
	}
	m.wrong = "a client waits for ever"
}
