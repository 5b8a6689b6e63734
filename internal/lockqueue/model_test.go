package lockqueue_test

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue"
)

// This is an exhaustive check of the contract between clients and a store. Every order of events is
// tried: messages are late, lost, overtaken, and an Acquire may come twice; a client stops for any
// time, renews, gives up and releases at any moment; entries run out, and holds are broken. The
// store is a [lockqueue.Queue], restored for each verb.
//
// Time passes in ticks. A client counts a lease from the tick in which it sent the request, the
// store from that in which it handles it.
//
// What must hold in every state:
//
//   - A client that believes in a hold has it in the store, with the same token, and not for longer
//     than the store.
//   - No more clients believe than every Limit allows.
//   - The holds are the longest prefix that is within every Limit in it, and each has been told.
//   - Tokens rise in the order of belief.
//   - With waits: if nothing more is lost, every wait ends.

const (
	modelOwners   = 4
	modelMessages = 3
)

// A protocol is a way in which clients and a store work together, and the bounds of the search.
type protocol struct {
	name       string
	limits     []int // of each client
	attempts   int   // of each client, one after the other; 0 means 1
	ttl, place uint8
	keep       uint8 // Keep of a release that has one
	ticks      uint8
	renewals   []uint8 // of each owner of a client
	releases   []uint8
	messages   int // in flight
	breaks     uint8
	doubled    uint8 // how many Acquires arrive twice
	block      uint8 // tokens of a grant, which clients use one after the other
	crash      bool
	waits      bool
	violates   string // what is found when what the name says is so
}

var (
	xx, xxx, sxs = []int{1, 1}, []int{1, 1, 1}, []int{driver.Shared, 1, driver.Shared}

	each, none = []uint8{1, 1, 1}, []uint8{0, 0, 0}
	first      = []uint8{1, 0, 0}
)

var protocols = []protocol{
	{name: "two exclusive", limits: xx},
	{name: "two exclusive, doubled and broken", limits: xx, messages: 2, doubled: 1, breaks: 1, ticks: 3},
	{name: "two exclusive, crash", limits: xx, messages: 2, crash: true},
	{name: "TTL above Place", limits: xx, messages: 2, ttl: 3, place: 1, ticks: 4, doubled: 1, renewals: first},
	{name: "two renewals", limits: xx, messages: 2, ttl: 3, place: 1, renewals: []uint8{2, 0}, releases: []uint8{0, 1}},
	{name: "three exclusive", limits: xxx, messages: 2, ticks: 3, place: 1, renewals: first, releases: first},
	{name: "reader, writer, reader", limits: sxs, messages: 2, ticks: 3, place: 1, renewals: none},
	{name: "semaphore of two", limits: []int{2, 2, 2}, messages: 2, ticks: 3, place: 1, renewals: first, releases: first},
	{name: "limits of two, three, one", limits: []int{2, 3, 1}, messages: 2, ticks: 3, place: 1, renewals: none, releases: first},
	{name: "keep", limits: xx, keep: 2, messages: 2, doubled: 1},
	{name: "block", limits: xx, block: 2, messages: 2, breaks: 1, ticks: 3},
	{name: "two attempts", limits: xx, attempts: 2, messages: 2, ticks: 3, place: 1, renewals: none},
	{name: "every wait ends", limits: xx, messages: 2, ttl: 4, ticks: 2, crash: true, waits: true, renewals: none},

	{name: "a deadline counts from the receipt of a reply", limits: xx, violates: "beyond"},
	{name: "a deadline counts from the receipt of a notice", limits: xx, violates: "beyond"},
	{name: "a notice confirms a renewal that has no answer", limits: xx, violates: "beyond"},
	{name: "a notice counts for an owner that has ended", limits: xx, messages: 2, violates: "without a hold"},
	{name: "an answer counts for an owner that has ended", limits: xx, violates: "without a hold"},
	{name: "a hold is passed on within a client after its deadline", limits: xx, block: 2, violates: "tokens"},
	{name: "waiters rely on notices", limits: xx, ttl: 4, ticks: 2, crash: true, waits: true, violates: "waits"},
	{name: "what has become of an Acquire is undone while its owner goes on", limits: xx, violates: "without a hold"},
	{name: "an owner acquires twice", limits: xx, violates: "believes"},
	{name: "a renewal sets the end", limits: xx, messages: 2, ttl: 3, place: 1, renewals: []uint8{2, 0}, releases: []uint8{0, 1}, violates: "believes"},
	{name: "a place that becomes a hold has another end than it had", limits: xx, violates: "believes"},
	{name: "only the Limit of the newcomer counts", limits: sxs, messages: 2, ticks: 3, place: 1, violates: "prefix"},
	{name: "the end of a place promotes none", limits: sxs, messages: 2, ticks: 3, place: 1, violates: "told"},
	{name: "a block has one token in the store", limits: xx, block: 2, violates: "tokens"},
	{name: "an Acquire that comes twice is granted twice", limits: xx, ttl: 3, place: 1, doubled: 1, violates: "beyond"},
	{name: "a place may be told that it holds, and is passed over", limits: xx, violates: "without a hold"},
	{name: "a renewal ends all other entries of the client", limits: xx, attempts: 2, messages: 2, violates: "without a hold"},
	{name: "a crash undoes the prolongation of a place", limits: xx, violates: "beyond"},
}

// The contract holds, and the search finds a history that breaks each broken variant.
func TestContractByExhaustion(t *testing.T) {
	for _, p := range protocols {
		t.Run(strings.ReplaceAll(p.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			m := newModel(p)
			m.explore(state{now: 1, breaks: m.breaks, doubled: m.doubled})
			t.Logf("%s: %d states", p.name, len(m.seen))
			switch {
			case p.violates == "" && m.wrong != "":
				t.Error(m.wrong)
				for _, step := range m.path {
					t.Log(step())
				}
			case p.violates != "" && !strings.Contains(m.wrong, p.violates):
				t.Errorf("found %q, want %q", m.wrong, p.violates)
			}
		})
	}
}

type phase uint8

const (
	unborn phase = iota
	requesting
	waiting
	held
	ended
)

type kind uint8

const (
	_ kind = iota
	acquire
	acquired
	renew
	renewed
	release
	notice
)

// A client is an owner in its process. Times are ticks since the beginning.
type client struct {
	phase              phase
	sent               uint8 // the time of its Acquire
	confirmed          uint8 // the end that is confirmed to it
	token              uint8 // 0 if it is not known
	renewals, releases uint8 // which are left
	turns              uint8 // how often the hold was passed on
	newest             uint8 // its newest request
	broken, look       bool
	crashed, raised    bool // raised: a renewal has no answer
	again              bool // it has acquired twice
}

type entry struct {
	owner, until, token uint8
	told, kept          bool
}

type message struct {
	kind                      kind
	owner, sent, asked, token uint8
	state                     driver.State
	request                   uint8 // its number
}

type state struct {
	now, last, breaks, doubled uint8
	greatest, exclusive        uint8 // the greatest tokens that were believed in: all, exclusive ones
	fallen                     bool  // tokens fell
	entries                    [modelOwners]entry
	clients                    [modelOwners]client
	messages                   [modelMessages]message
}

type model struct {
	protocol
	seed  maphash.Seed
	seen  map[uint64]struct{} // hashes of states: two of a million are the same with a chance of 2^-25
	path  []func() string     // the steps to the state that is looked at
	wrong string              // what is wrong with that, which ends the search
	queue lockqueue.Queue[uint8]
}

func newModel(p protocol) *model {
	p.ttl, p.place, p.ticks = cmp.Or(p.ttl, 2), cmp.Or(p.place, 2), cmp.Or(p.ticks, 4)
	p.block, p.messages, p.attempts = cmp.Or(p.block, 1), cmp.Or(p.messages, modelMessages), max(p.attempts, 1)
	if p.renewals == nil {
		p.renewals = each
	}
	if p.releases == nil {
		p.releases = each
	}
	return &model{protocol: p, seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}}
}

func (m *model) owners() uint8          { return uint8(len(m.limits) * m.attempts) }
func (m *model) client(owner uint8) int { return int(owner) / m.attempts }
func (m *model) limit(owner uint8) int  { return m.limits[m.client(owner)] }

// explore takes every step that is possible in a state, and goes on from there.
func (m *model) explore(s state) {
	m.expand(s, func(t state, step func() string) {
		if m.wrong != "" {
			return
		}
		m.forget(&t)
		hash := maphash.Comparable(m.seed, t)
		if _, seen := m.seen[hash]; seen {
			return
		}
		m.seen[hash] = struct{}{}
		m.path = append(m.path, func() string { return fmt.Sprintf("%d. %s %+v", t.now, step(), t.entries) })
		m.wrong = m.check(&t)
		if m.wrong == "" && m.waits && !m.everyWaitEnds(t) {
			m.wrong = "a client waits for ever"
		}
		if m.wrong == "" {
			m.explore(t)
		}
		if m.wrong == "" {
			m.path = m.path[:len(m.path)-1]
		}
	})
}

// forget drops what can have no effect any more, so that fewer states differ.
func (m *model) forget(s *state) {
	keepAll := m.name == "an answer counts for an owner that has ended" || m.name == "a notice counts for an owner that has ended"
	for o := range m.owners() {
		c := &s.clients[o]
		if c.confirmed <= s.now {
			c.confirmed = 0
		}
		switch {
		case c.crashed:
			*c = client{phase: ended, crashed: true, broken: c.broken}
		case c.phase == ended && !keepAll:
			*c = client{phase: ended, releases: c.releases, broken: c.broken, again: c.again}
		}
	}
	for i, msg := range s.messages {
		c := s.clients[msg.owner]
		reply := msg.kind == acquired || msg.kind == renewed
		if (reply || msg.kind == notice) && c.phase == ended && !keepAll || reply && msg.request != c.newest {
			s.messages[i] = message{}
		}
	}
	for i := range s.entries {
		if s.entries[i].until <= s.now {
			s.entries[i].until = 0
		}
	}
	slices.SortFunc(s.messages[:], func(a, b message) int { return cmp.Compare(b.rank(), a.rank()) })
}

func (a message) rank() uint64 {
	rank := uint64(a.kind)
	for _, part := range []uint8{a.owner, a.sent, a.asked, a.token, uint8(a.state), a.request} {
		rank = rank<<8 | uint64(part)
	}
	return rank
}

func (m *model) send(s *state, msg message) bool {
	for i := range m.messages {
		if s.messages[i].kind == 0 {
			s.messages[i] = msg
			return true
		}
	}
	return false
}

// expand takes every step that is possible in s.
func (m *model) expand(s state, reach func(state, func() string)) {
	if s.now < m.ticks {
		t := s
		t.now++
		reach(t, func() string { return "a tick" })
	}
	for i, msg := range s.messages {
		if msg.kind == 0 || i > 0 && msg == s.messages[i-1] {
			continue
		}
		t := s
		t.messages[i] = message{}
		reach(t, func() string { return fmt.Sprintf("lost: %+v", msg) })
		m.deliver(&t, msg)
		reach(t, func() string { return fmt.Sprintf("arrives: %+v", msg) })
		if msg.kind == acquire && s.doubled > 0 {
			t := s
			t.doubled--
			m.deliver(&t, msg)
			reach(t, func() string { return fmt.Sprintf("arrives, a copy follows: %+v", msg) })
		}
	}
	t := s
	m.store(&t, message{})
	reach(t, func() string { return "the store looks" })
	if s.breaks > 0 {
		t := s
		t.breaks--
		m.breakAll(&t)
		reach(t, func() string { return "all holds are broken" })
	}
	if m.name == "a crash undoes the prolongation of a place" {
		for i, e := range s.entries {
			if e.until > s.now+1 && !e.told {
				t := s
				t.entries[i].until--
				reach(t, func() string { return "a prolongation is undone" })
			}
		}
	}
	for o := range m.owners() {
		m.clientSteps(s, o, func(t state, step string) {
			reach(t, func() string { return fmt.Sprintf("%c: %s", 'A'+o, step) })
		})
	}
}

func (m *model) clientSteps(s state, o uint8, reach func(state, string)) {
	c := s.clients[o]
	if c.crashed {
		return
	}
	step := func(text string, f func(t *state, c *client) bool) {
		t := s
		if f(&t, &t.clients[o]) {
			reach(t, text)
		}
	}
	sendRelease := func(keep uint8) {
		step(fmt.Sprint("sends Release ", keep), func(t *state, c *client) bool {
			c.releases--
			return m.send(t, message{kind: release, owner: o, asked: keep})
		})
	}
	switch c.phase {
	case unborn:
		if before := s.clients[max(o, 1)-1]; int(o)%m.attempts != 0 && (before.phase != ended || before.crashed) {
			return
		}
		step("sends Acquire", func(t *state, c *client) bool {
			*c = client{
				phase: requesting, sent: s.now,
				renewals: m.renewals[m.client(o)], releases: m.releases[m.client(o)],
			}
			return m.send(t, message{kind: acquire, owner: o, sent: s.now})
		})
		return
	case ended:
		if m.name == "an owner acquires twice" && !c.again {
			step("acquires again", func(t *state, c *client) bool {
				*c = client{phase: requesting, sent: s.now, again: true, releases: c.releases}
				return m.send(t, message{kind: acquire, owner: o, sent: s.now})
			})
		}
		if c.releases > 0 {
			sendRelease(0)
			if m.keep > 0 {
				sendRelease(m.keep)
			}
		}
		return
	}
	if m.name == "what has become of an Acquire is undone while its owner goes on" && c.phase == requesting && c.releases > 0 {
		step("undoes its Acquire", func(t *state, c *client) bool {
			c.releases--
			c.newest++
			return m.send(t, message{kind: release, owner: o})
		})
	}
	if c.renewals > 0 && m.name != "waiters rely on notices" {
		step("sends Renew", func(t *state, c *client) bool {
			c.renewals--
			c.newest++
			c.look, c.raised = false, m.name == "a notice confirms a renewal that has no answer"
			msg := message{kind: renew, owner: o, sent: s.now, asked: m.place, token: c.token, request: c.newest}
			if c.phase == held {
				msg.asked = m.ttl
			}
			return m.send(t, msg)
		})
	}
	step("ends", func(t *state, c *client) bool { c.end(); return true })
	if c.phase == held && c.turns+1 < m.block && (s.now < c.confirmed && !c.look || m.name == "a hold is passed on within a client after its deadline") {
		step("passes its hold on", func(t *state, c *client) bool {
			c.turns++
			m.begin(t, o, c.token+c.turns)
			return true
		})
	}
	if m.crash {
		step("crashes", func(t *state, c *client) bool { c.crashed = true; return true })
	}
}

func (m *model) deliver(s *state, msg message) {
	switch msg.kind {
	case acquire, renew, release:
		m.store(s, msg)
	default:
		if !s.clients[msg.owner].crashed {
			m.read(s, msg)
		}
	}
}

var ownerNames = [modelOwners]string{"A", "B", "C", "D"}

// change lets f change the queue. It notifies those that f returns as promoted.
func (m *model) change(s *state, self uint8, f func(now time.Duration, c *lockqueue.Counter) []lockqueue.Entry[uint8]) {
	m.queue.Settle(math.MaxInt64)
	before := map[uint8]entry{}
	for _, e := range s.entries {
		if e.owner == 0 {
			break
		}
		if e.until > s.now {
			before[e.owner-1] = e
		}
		full := lockqueue.Entry[uint8]{
			Owner: ownerNames[e.owner-1], Token: int64(e.token), Tokens: int(m.block), Limit: m.limit(e.owner - 1),
			Until: time.Duration(e.until), Kept: e.kept, Data: e.owner - 1,
		}
		if m.name == "only the Limit of the newcomer counts" && e.told {
			full.Limit = driver.Shared
		}
		m.queue.Restore(&full)
	}
	counter := lockqueue.Counter{Last: int64(s.last)}
	promoted := f(time.Duration(s.now), &counter)
	s.last = uint8(counter.Last)
	s.entries = [modelOwners]entry{}
	i, holds := 0, len(m.queue.Holds())
	for _, e := range m.queue.Entries() {
		was := before[e.Data]
		told := was.told || e.Data == self && i < holds
		for _, p := range promoted {
			told = told || p.Owner == e.Owner
		}
		if m.name == "a place that becomes a hold has another end than it had" && told && !was.told && e.Data != self {
			e.Until = time.Duration(s.now + 1)
		}
		s.entries[i] = entry{owner: e.Data + 1, until: uint8(e.Until), token: uint8(e.Token), told: told, kept: e.Kept}
		i++
	}
	for _, p := range promoted {
		if e := s.find(p.Data); e != nil {
			m.send(s, message{kind: notice, owner: p.Data, token: e.token})
		}
	}
}

func (s *state) find(owner uint8) *entry {
	for i := range s.entries {
		if e := &s.entries[i]; e.owner == owner+1 && !e.kept {
			return e
		}
	}
	return nil
}

// store has the store handle a request, or look for what has ended.
func (m *model) store(s *state, msg message) {
	const nobody = modelOwners
	name := ownerNames[msg.owner]
	reply := message{owner: msg.owner, sent: msg.sent, request: msg.request}
	switch msg.kind {
	case acquire:
		var own driver.Entry
		var err error
		m.change(s, msg.owner, func(now time.Duration, c *lockqueue.Counter) (promoted []lockqueue.Entry[uint8]) {
			tokens := int(m.block)
			if m.name == "a block has one token in the store" {
				tokens = 1
			}
			own, promoted, err = m.queue.Acquire(&driver.Request{
				Owner: name, TTL: time.Duration(m.ttl), Place: time.Duration(m.place), Limit: m.limit(msg.owner), Tokens: tokens,
			}, msg.owner, now, c)
			return promoted
		})
		e := s.find(msg.owner)
		if err != nil {
			if m.name != "an Acquire that comes twice is granted twice" || e == nil || !e.told {
				return
			}
			own.State = driver.Held
		}
		reply.kind, reply.state, reply.asked = acquired, own.State, m.place
		if own.State == driver.Held {
			reply.asked = m.ttl
		}
		if e != nil {
			reply.token = e.token
		}
	case renew:
		var own driver.Entry
		m.change(s, msg.owner, func(now time.Duration, c *lockqueue.Counter) (promoted []lockqueue.Entry[uint8]) {
			if m.name == "a renewal ends all other entries of the client" {
				for o := range m.owners() {
					if o != msg.owner && m.client(o) == m.client(msg.owner) {
						m.queue.Release(ownerNames[o], 0, now)
					}
				}
			}
			own, promoted = m.queue.Renew(name, int64(msg.token), time.Duration(msg.asked), now)
			return promoted
		})
		reply.kind, reply.state, reply.asked = renewed, own.State, msg.asked
		if e := s.find(msg.owner); e != nil && own.State != driver.Lost {
			reply.token = e.token
			if m.name == "a renewal sets the end" {
				e.until = s.now + msg.asked
			}
		}
	case release:
		e := s.find(msg.owner)
		m.change(s, msg.owner, func(now time.Duration, _ *lockqueue.Counter) []lockqueue.Entry[uint8] {
			_, promoted := m.queue.Release(name, time.Duration(msg.asked), now)
			if m.name == "the end of a place promotes none" && e != nil && !e.told {
				return nil
			}
			return promoted
		})
		return
	default:
		m.change(s, nobody, func(now time.Duration, _ *lockqueue.Counter) []lockqueue.Entry[uint8] {
			promoted := m.queue.Settle(now)
			if m.name == "a place may be told that it holds, and is passed over" {
				for _, p := range promoted {
					m.send(s, message{kind: notice, owner: p.Data, token: uint8(p.Token)})
					_, more := m.queue.Release(p.Owner, 0, now)
					promoted = append(promoted, more...)
				}
			}
			return promoted
		})
		return
	}
	m.send(s, reply)
}

func (m *model) breakAll(s *state) {
	var broken []lockqueue.Entry[uint8]
	m.change(s, modelOwners, func(now time.Duration, _ *lockqueue.Counter) (promoted []lockqueue.Entry[uint8]) {
		broken, promoted = m.queue.Break(0, now)
		return promoted
	})
	for _, e := range broken {
		s.clients[e.Data].broken = true
		m.send(s, message{kind: notice, owner: e.Data})
	}
}

func (c *client) end() { c.phase, c.turns, c.look = ended, 0, false }

// begin notes that a client begins to believe in a token.
func (m *model) begin(s *state, o, token uint8) {
	if m.name == "an owner acquires twice" || s.clients[o].broken {
		return
	}
	if m.limit(o) == 1 {
		s.fallen = s.fallen || token <= s.greatest
		s.exclusive = max(s.exclusive, token)
	}
	s.fallen = s.fallen || token <= s.exclusive && m.limit(o) > 1
	s.greatest = max(s.greatest, token)
}

func (m *model) hold(s *state, o, token uint8) {
	c := &s.clients[o]
	c.token = token
	if c.confirmed <= s.now {
		c.end()
		return
	}
	c.phase = held
	m.begin(s, o, token)
}

// read has a client read a reply or a notice.
func (m *model) read(s *state, msg message) {
	c := &s.clients[msg.owner]
	if msg.kind == notice {
		m.readNotice(s, c, msg)
		return
	}
	if msg.request != c.newest {
		return
	}
	end := msg.sent + msg.asked
	if m.name == "a deadline counts from the receipt of a reply" {
		end = s.now + msg.asked
	}
	switch {
	case c.phase == ended:
		if m.name == "an answer counts for an owner that has ended" && msg.state == driver.Held {
			c.confirmed = max(c.confirmed, end)
			m.hold(s, msg.owner, msg.token)
		}
	case msg.state == driver.Lost, c.token != 0 && msg.token != c.token && msg.token != 0:
		c.end()
	case msg.state == driver.Waiting:
		if c.phase == held {
			return
		}
		c.confirmed, c.phase, c.token, c.raised = max(c.confirmed, end), waiting, msg.token, false
	default:
		c.confirmed = max(c.confirmed, end)
		if c.phase != held {
			m.hold(s, msg.owner, msg.token)
		}
	}
}

func (m *model) readNotice(s *state, c *client, msg message) {
	switch {
	case c.phase == ended && m.name == "a notice counts for an owner that has ended" && msg.token != 0:
		c.confirmed = max(c.confirmed, c.sent+m.place)
		m.hold(s, msg.owner, msg.token)
	case c.phase == ended:
	case msg.token == 0:
		c.look = true
	case c.phase == held || c.token != 0 && c.token != msg.token:
	default:
		c.confirmed = max(c.confirmed, c.sent+m.place) // the notice proves that the Acquire has arrived
		if m.name == "a deadline counts from the receipt of a notice" || m.name == "a notice confirms a renewal that has no answer" && c.raised {
			c.confirmed = max(c.confirmed, s.now+m.place)
		}
		if c.confirmed > s.now {
			m.hold(s, msg.owner, msg.token)
		}
	}
}

// check returns what is wrong with a state.
func (m *model) check(s *state) string {
	if s.fallen {
		return "tokens do not rise in the order of belief"
	}
	believers, least := 0, driver.Shared
	for o := range m.owners() {
		c := &s.clients[o]
		if c.phase != held || c.broken || c.crashed || s.now >= c.confirmed {
			continue
		}
		believers, least = believers+1, min(least, m.limit(o))
		switch e := s.find(o); {
		case e == nil || !e.told:
			return "a client believes without a hold in the store"
		case e.token != c.token:
			return "a client believes in another token than the store"
		case e.until < c.confirmed:
			return "a client believes beyond the end in the store"
		}
	}
	if believers > least {
		return "more clients believe than a Limit allows"
	}
	told, holds, length, least := 0, 0, 0, driver.Shared
	for _, e := range s.entries {
		if e.owner == 0 {
			break
		}
		if length, least = length+1, min(least, m.limit(e.owner-1)); length <= least {
			holds = length
		}
		if e.told && told == length-1 {
			told = length
		}
	}
	switch {
	case told > holds:
		return "the holds are not the longest prefix"
	case told < holds:
		return "a hold was not told"
	}
	return ""
}

// everyWaitEnds plays on without losses: live clients release what they hold, and look at each
// tick.
func (m *model) everyWaitEnds(s state) bool {
	for range 6 {
		for busy := true; busy; {
			busy = false
			for i, msg := range s.messages {
				if msg.kind != 0 {
					s.messages[i], busy = message{}, true
					m.deliver(&s, msg)
				}
			}
			for o := range m.owners() {
				if c := &s.clients[o]; c.phase == held && !c.crashed {
					c.end()
					m.store(&s, message{kind: release, owner: o})
					busy = true
				}
			}
		}
		waits := false
		s.now++
		for o := range m.owners() {
			c := &s.clients[o]
			if c.crashed || c.phase != requesting && c.phase != waiting {
				continue
			}
			if waits = true; m.name != "waiters rely on notices" {
				c.newest++
				m.store(&s, message{kind: renew, owner: o, sent: s.now, asked: m.place, token: c.token, request: c.newest})
				for i, msg := range s.messages {
					if msg.kind != 0 {
						s.messages[i] = message{}
						m.deliver(&s, msg)
					}
				}
			}
		}
		if !waits {
			return true
		}
	}
	return false
}
