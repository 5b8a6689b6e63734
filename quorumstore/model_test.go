package quorumstore

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// This is an exhaustive check of the fencing tokens of a quorum: every order of
// events is tried that three nodes and a few contenders can come into.
// Requests are applied late or never, answers come late or never, in any
// order; a hold may end at any moment, by expiry, release or break; contenders
// propose floors as if their clocks were anywhere, and give up at any moment.
//
// Some of that needs no step of its own. A request that is refused is like one
// that is never applied, and a contender who gives up like one who waits for
// ever. A hold need not end before somebody else is granted the name, so that
// it ends in the same step; or it does not end, and the request is never
// applied.
//
// What must hold: no two acquisitions that succeeded have one token, and one
// that began after another had succeeded has a higher one.

const (
	modelNodes   = 3
	modelNeed    = 2
	modelClients = 3
)

// A protocol is a way to make one token of what the nodes granted.
type protocol struct {
	name      string
	clients   int
	floors    []uint8
	rounds    int  // how often the first client may ask, under one owner
	greatest  bool // take the greatest token granted
	writeBack bool // and write it back to a majority before it counts
	unchecked bool // which looks at the holder only, not at the counter
	forgets   bool // one node forgets everything, once
	abstains  bool // and takes no part until those who knew it before are through
	broken    bool
}

var someFloors = []uint8{0, 2, 4}

var protocols = []protocol{
	{name: "one value", clients: 3, floors: someFloors, rounds: 1},
	{name: "one value, asked again", clients: 2, floors: someFloors, rounds: 2},
	{name: "one value, a node forgets and abstains", clients: 2, floors: someFloors, rounds: 1, forgets: true, abstains: true},
	{name: "one value, a node forgets", clients: 2, floors: someFloors, rounds: 1, forgets: true, broken: true},
	{name: "greatest value", clients: 2, floors: someFloors, rounds: 1, greatest: true, broken: true},
	{name: "written back", clients: 2, floors: someFloors, rounds: 1, greatest: true, writeBack: true},
	{name: "written back, holder checked only", clients: 2, floors: someFloors, rounds: 1, greatest: true, writeBack: true, unchecked: true, broken: true},
}

func TestTokensByExhaustion(t *testing.T) {
	for _, p := range protocols {
		t.Run(strings.ReplaceAll(p.name, " ", "-"), func(t *testing.T) {
			m := model{protocol: p, seen: map[key]struct{}{}}
			m.explore()
			t.Logf("%d states", len(m.seen))
			if p.broken && m.wrong == "" {
				t.Error("a broken protocol was not found out")
			}
			if !p.broken && m.wrong != "" {
				t.Error(m.wrong)
			}
		})
	}
}

// A state is everything that matters for what can happen next.
type state struct {
	nodes   [modelNodes]modelNode
	clients [modelClients]modelClient
	forgot  bool
}

type modelNode struct {
	holder  uint8 // 0 for none, else a client counted from 1
	token   uint8 // of the hold
	counter uint8
	away    uint8 // after forgetting: the clients that must be through, as bits; plus awayBit
	lanes   [modelClients]modelLane
}

const awayBit = 0x80

// A modelLane is what is under way between a client and a node.
type modelLane struct {
	stray   uint8 // a request of the last round, still to be applied: its floor + 1
	asked   bool  // a request is still to be applied
	granted uint8 // the answer to it, 0 if refused or still to be asked
	writing bool  // a write-back is still to be applied
	acked   bool  // its answer
}

type modelClient struct {
	phase phase
	round uint8
	floor uint8
	above uint8 // the greatest token of those that had succeeded when it began
	token uint8 // what it writes back, or has
}

type phase uint8

const (
	waiting phase = iota
	asking
	writing
	succeeded
	failed
)

type model struct {
	protocol
	seen  map[key]struct{}
	todo  []state
	wrong string
}

func (m *model) explore() {
	m.reach(state{})
	for len(m.todo) > 0 && m.wrong == "" {
		s := m.todo[len(m.todo)-1]
		m.todo = m.todo[:len(m.todo)-1]
		for c := range m.clients {
			m.clientSteps(s, c)
		}
		for n := range modelNodes {
			m.nodeSteps(s, n)
		}
	}
}

// reach notes a state that can come about.
func (m *model) reach(s state) {
	if m.rounds == 1 && !m.writeBack { // who holds the name makes no difference
		for n := range s.nodes {
			s.nodes[n].holder, s.nodes[n].token = 0, 0
		}
	}
	var k key
	for n := range s.nodes {
		k[n] = s.nodes[n].pack()
	}
	slices.Sort(k[:modelNodes]) // nodes are alike
	for c, client := range s.clients {
		k[modelNodes] |= client.pack() << (20 * c)
	}
	if s.forgot {
		k[modelNodes] |= 1 << 63
	}
	if _, seen := m.seen[k]; !seen {
		m.seen[k] = struct{}{}
		m.todo = append(m.todo, s)
	}
}

// A key is a state in short.
type key [modelNodes + 1]uint64

func (n *modelNode) pack() uint64 {
	bits := uint64(n.holder) | uint64(n.token)<<2 | uint64(n.counter)<<6 | uint64(n.away)<<10
	for c, lane := range n.lanes {
		bits |= lane.pack() << (18 + 10*c)
	}
	return bits
}

func (l modelLane) pack() uint64 {
	bits := uint64(l.stray) | uint64(l.granted)<<3
	for i, set := range []bool{l.asked, l.writing, l.acked} {
		if set {
			bits |= 1 << (7 + i)
		}
	}
	return bits
}

func (c modelClient) pack() uint64 {
	return uint64(c.phase) | uint64(c.round)<<3 | uint64(c.floor)<<5 | uint64(c.above)<<8 | uint64(c.token)<<12
}

// clientSteps takes every step that a client can take.
func (m *model) clientSteps(s state, c int) {
	client := s.clients[c]
	switch client.phase {
	case waiting:
		if c > 0 && s.clients[c-1].phase == waiting {
			return // they are alike: they begin in order
		}
		for _, other := range s.clients {
			if other.phase == succeeded {
				client.above = max(client.above, other.token)
			}
		}
		m.ask(s, c, client)
	case asking:
		m.countVotes(s, c)
		if c == 0 && int(client.round) < m.rounds {
			m.ask(s, c, client)
		}
		m.giveUp(s, c)
	case writing:
		acks := 0
		for n := range s.nodes {
			if s.nodes[n].lanes[c].acked {
				acks++
			}
		}
		if acks >= modelNeed {
			m.succeed(s, c, client.token)
		}
		m.giveUp(s, c)
	}
}

// giveUp ends a client's part where it matters whether he waits on.
func (m *model) giveUp(s state, c int) {
	if m.abstains {
		m.end(s, c, failed)
	}
}

// ask begins a round, with any floor.
func (m *model) ask(s state, c int, client modelClient) {
	client.phase = asking
	client.round++
	for _, floor := range m.floors {
		next := s
		for n := range next.nodes {
			lane := &next.nodes[n].lanes[c]
			*lane = modelLane{asked: true, stray: lane.stray}
			if s.nodes[n].lanes[c].asked {
				lane.stray = client.floor + 1
			}
		}
		next.clients[c] = client
		next.clients[c].floor = floor
		m.reach(next)
	}
}

// countVotes lets the client decide by any part of the answers that are there.
func (m *model) countVotes(s state, c int) {
	for part := range 1 << modelNodes {
		b := tally{modelNeed, !m.greatest, make([]driver.Result, modelNodes), slices.Repeat([]error{errNoReply}, modelNodes)}
		for n := range s.nodes {
			if token := s.nodes[n].lanes[c].granted; part&(1<<n) != 0 && token > 0 {
				b.results[n], b.errs[n] = driver.Result{Granted: true, Token: int64(token)}, nil
			}
		}
		outcome, token := b.verdictAfter(0)
		switch {
		case outcome != verdictWon:
		case !m.greatest:
			m.succeed(s, c, uint8(token))
		case !m.writeBack:
			m.succeed(s, c, uint8(slices.Max(b.tokens())))
		default:
			next := s
			next.clients[c].phase, next.clients[c].token = writing, uint8(slices.Max(b.tokens()))
			for n := range next.nodes {
				next.nodes[n].lanes[c].writing = true
			}
			m.reach(next)
		}
	}
}

func (m *model) succeed(s state, c int, token uint8) {
	if token <= s.clients[c].above {
		m.wrong = fmt.Sprintf("client %d began after token %d and was granted %d: %+v", c, s.clients[c].above, token, s)
	}
	for other, client := range s.clients {
		if client.phase == succeeded && client.token == token {
			m.wrong = fmt.Sprintf("clients %d and %d have token %d: %+v", other, c, token, s)
		}
	}
	s.clients[c].token = token
	m.end(s, c, succeeded)
}

// end ends the client's part: what he has sent may still be applied, but he
// hears no answers.
func (m *model) end(s state, c int, how phase) {
	client := &s.clients[c]
	client.phase, client.above, client.round = how, 0, 0
	if how == failed {
		client.token = 0
	}
	for n := range s.nodes {
		lane := &s.nodes[n].lanes[c]
		lane.granted, lane.acked = 0, false
		s.nodes[n].away &^= 1 << c
	}
	m.reach(s)
}

// nodeSteps takes every step that can happen at a node.
func (m *model) nodeSteps(s state, n int) {
	node := s.nodes[n]
	put := func(changed modelNode) {
		next := s
		next.nodes[n] = changed
		m.reach(next)
	}
	if node.away != 0 {
		if node.away == awayBit { // all are through that had its word
			back := node
			back.away = 0
			for _, other := range s.nodes {
				back.counter = max(back.counter, other.counter)
			}
			put(back)
		}
		return
	}
	if m.forgets && !s.forgot {
		m.forget(s, n)
	}
	for c := range m.clients {
		lane := node.lanes[c]
		if lane.asked {
			m.grant(node, c, s.clients[c].floor, func(granted modelNode) {
				granted.lanes[c].asked = false
				if s.clients[c].phase == asking {
					granted.lanes[c].granted = granted.token
				}
				put(granted)
			})
		}
		if lane.stray > 0 {
			m.grant(node, c, lane.stray-1, func(granted modelNode) {
				granted.lanes[c].stray = 0
				put(granted)
			})
		}
		if lane.writing {
			put(m.write(node, c, s.clients[c]))
		}
	}
}

// grant grants as every store does: again what this owner holds, and a new
// token when the hold in the way has ended, his own too.
func (m *model) grant(node modelNode, client int, floor uint8, granted func(modelNode)) {
	me := uint8(client + 1)
	if node.holder == me {
		granted(node)
	}
	node.counter = max(node.counter+1, floor)
	node.holder, node.token = me, node.counter
	granted(node)
}

func (m *model) write(node modelNode, c int, client modelClient) modelNode {
	node.lanes[c].writing = false
	if node.holder != uint8(c+1) || !m.unchecked && node.counter > client.token {
		return node
	}
	node.counter = max(node.counter, client.token)
	node.lanes[c].acked = client.phase == writing
	return node
}

// forget makes a node lose its memory.
func (m *model) forget(s state, n int) {
	s.forgot = true
	node := &s.nodes[n]
	node.holder, node.token, node.counter = 0, 0, 0
	if m.abstains {
		node.away = awayBit
		for c, client := range s.clients {
			if client.phase == asking || client.phase == writing {
				node.away |= 1 << c
			}
		}
	}
	m.reach(s)
}
