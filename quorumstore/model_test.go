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
// that is never applied, and a contender that gives up like one that waits for
// ever. A hold need not end before another owner is granted the name, so that
// it ends in the same step; or it does not end, and the request is never
// applied. An owner asks each node once, so a node's holder makes no difference.
//
// What must hold: no two acquisitions that succeeded have one token, and one
// that began after another had succeeded has a higher one.

const (
	modelNodes   = 3
	modelNeed    = 2
	modelClients = 3
)

var modelFloors = []uint8{0, 2, 4}

// A protocol is a way to make one token of what the nodes granted.
type protocol struct {
	name     string
	clients  int
	greatest bool // take the greatest token granted
	forgets  bool // one node forgets everything, once
	abstains bool // and takes no part until those that knew it before are through
	broken   bool
}

var protocols = []protocol{
	{name: "one value", clients: 3},
	{name: "one value, a node forgets and abstains", clients: 2, forgets: true, abstains: true},
	{name: "one value, a node forgets", clients: 2, forgets: true, broken: true},
	{name: "greatest value", clients: 2, greatest: true, broken: true},
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
	counter uint8
	away    uint8 // after forgetting: the clients that must be through, as bits; plus awayBit
	lanes   [modelClients]modelLane
}

const awayBit = 0x80

// A modelLane is what is under way between a client and a node.
type modelLane struct {
	asked   bool  // a request is still to be applied
	granted uint8 // the answer to it, 0 if refused or still to be asked
}

type modelClient struct {
	phase phase
	floor uint8
	above uint8 // the greatest token of those that had succeeded when it began
	token uint8
}

type phase uint8

const (
	waiting phase = iota
	asking
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
	bits := uint64(n.counter) | uint64(n.away)<<4
	for c, lane := range n.lanes {
		packed := uint64(lane.granted)
		if lane.asked {
			packed |= 1 << 4
		}
		bits |= packed << (12 + 5*c)
	}
	return bits
}

func (c modelClient) pack() uint64 {
	return uint64(c.phase) | uint64(c.floor)<<3 | uint64(c.above)<<6 | uint64(c.token)<<10
}

// clientSteps takes every step that a client can take.
func (m *model) clientSteps(s state, c int) {
	switch s.clients[c].phase {
	case waiting:
		if c > 0 && s.clients[c-1].phase == waiting {
			return // they are alike: they begin in order
		}
		m.ask(s, c)
	case asking:
		m.countVotes(s, c)
		if m.abstains { // It matters whether it waits on.
			m.end(s, c, failed)
		}
	}
}

// ask begins an acquisition, with any floor.
func (m *model) ask(s state, c int) {
	client := &s.clients[c]
	for _, other := range s.clients {
		if other.phase == succeeded {
			client.above = max(client.above, other.token)
		}
	}
	client.phase = asking
	for n := range s.nodes {
		s.nodes[n].lanes[c].asked = true
	}
	for _, client.floor = range modelFloors {
		m.reach(s)
	}
}

// countVotes lets the client decide by any part of the answers that are there.
func (m *model) countVotes(s state, c int) {
	for part := range 1 << modelNodes {
		votes := votes{need: modelNeed}
		for n := range s.nodes {
			if token := s.nodes[n].lanes[c].granted; part&(1<<n) != 0 && token > 0 {
				votes.add(driver.Result{Granted: true, Token: int64(token)}, nil)
			}
		}
		outcome, token := votes.verdict(0)
		if m.greatest && len(votes.tokens) >= modelNeed {
			outcome, token = verdictWon, slices.Max(votes.tokens)
		}
		if outcome == verdictWon {
			m.succeed(s, c, uint8(token))
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

// end ends the client's part: what it has sent may still be applied, but it
// gets no answers.
func (m *model) end(s state, c int, how phase) {
	s.clients[c].phase, s.clients[c].above = how, 0
	for n := range s.nodes {
		s.nodes[n].lanes[c].granted = 0
		s.nodes[n].away &^= 1 << c
	}
	m.reach(s)
}

// nodeSteps takes every step that can happen at a node.
func (m *model) nodeSteps(s state, n int) {
	switch s.nodes[n].away {
	case 0:
	case awayBit: // all are through that had its word
		s.nodes[n].away = 0
		for _, other := range s.nodes {
			s.nodes[n].counter = max(s.nodes[n].counter, other.counter)
		}
		m.reach(s)
		return
	default:
		return
	}
	if m.forgets && !s.forgot {
		m.forget(s, n)
	}
	for c := range m.clients {
		if s.nodes[n].lanes[c].asked {
			m.grant(s, n, c)
		}
	}
}

// grant grants as every store does: a new token, above all that it has granted.
func (m *model) grant(s state, n, c int) {
	node := &s.nodes[n]
	node.counter = max(node.counter+1, s.clients[c].floor)
	node.lanes[c].asked = false
	if s.clients[c].phase == asking {
		node.lanes[c].granted = node.counter
	}
	m.reach(s)
}

// forget makes a node lose its memory.
func (m *model) forget(s state, n int) {
	s.forgot = true
	node := &s.nodes[n]
	node.counter = 0
	if m.abstains {
		node.away = awayBit
		for c, client := range s.clients {
			if client.phase == asking {
				node.away |= 1 << c
			}
		}
	}
	m.reach(s)
}
