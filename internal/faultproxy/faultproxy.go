// Package faultproxy is a TCP proxy that injects faults, for tests of stores that use a server. It
// delays traffic, loses a request or its reply, holds back one direction or both, and closes
// connections.
//
// The faults can be set at any time and apply to all connections. The bytes of a connection are
// never reordered, and none is lost unless the connection is closed then, as in TCP itself.
package faultproxy

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// A Direction is a direction of traffic through a proxy.
type Direction int

const (
	// Up is from the client to the server.
	Up Direction = iota

	// Down is from the server to the client.
	Down
)

// A Proxy forwards connections to a server.
type Proxy struct {
	listener net.Listener
	group    sync.WaitGroup

	mu          sync.Mutex
	target      string
	closed      bool
	conns       map[*proxiedConn]bool
	mark        func(request []byte) bool
	delay       [2][2]time.Duration // the least and the greatest of each direction; zeros for none
	gates       [2]chan struct{}    // closed to let bytes through; nil if open
	markedGates [2]chan struct{}    // the same for marked connections alone
	losing      bool                // the next request that matches is lost, or its reply
	match       func([]byte) bool   // nil matches any request
	loseReply   bool
	lostReplies int
}

// Start starts a proxy to a server at the address target. It ends with the test.
func Start(tb testing.TB, target string) *Proxy {
	tb.Helper()
	p, err := Listen(target)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p
}

// Listen starts a proxy to a server at the address target, until Close.
func Listen(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, listener: listener, conns: map[*proxiedConn]bool{}}
	p.group.Go(p.acceptLoop)
	return p, nil
}

// Addr returns the address to connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Delay delays everything in one direction by a random time between min and max. Zeros end the
// delay.
func (p *Proxy) Delay(way Direction, min, max time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay[way] = [2]time.Duration{min, max}
}

// Hold blocks one direction until Pass. Connections stay open. What is sent arrives late or, if the
// connection is closed meanwhile, never. Hold of both directions is a network that drops
// everything; new connections seem to succeed.
func (p *Proxy) Hold(way Direction) { p.setGate(&p.gates[way], make(chan struct{})) }

// Pass ends Hold.
func (p *Proxy) Pass(way Direction) { p.setGate(&p.gates[way], nil) }

// Mark marks each connection, from now on, on which a request matches.
func (p *Proxy) Mark(match func(request []byte) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mark = match
}

// HoldMarked is Hold for the marked connections alone.
func (p *Proxy) HoldMarked(way Direction) { p.setGate(&p.markedGates[way], make(chan struct{})) }

// PassMarked ends HoldMarked.
func (p *Proxy) PassMarked(way Direction) { p.setGate(&p.markedGates[way], nil) }

// setGate replaces a gate, and lets through what waits at the one before, to the next.
func (p *Proxy) setGate(gate *chan struct{}, next chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if *gate != nil {
		close(*gate)
	}
	*gate = next
}

// SetTarget has new connections lead to another server.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// LoseRequest loses the next request that matches, on any connection, and closes that connection. A
// request is what one read from the client returns. A nil match matches any request.
func (p *Proxy) LoseRequest(match func(request []byte) bool) { p.setLoss(match, false) }

// LoseReply forwards the next request that matches, waits for the reply, and closes the connection
// instead of forwarding the reply.
func (p *Proxy) LoseReply(match func(request []byte) bool) { p.setLoss(match, true) }

// LostReplies returns how many replies were lost.
func (p *Proxy) LostReplies() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lostReplies
}

func (p *Proxy) setLoss(match func(request []byte) bool, loseReply bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.losing, p.match, p.loseReply = true, match, loseReply
}

// Reset closes all connections at once with a TCP reset. New connections succeed.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.closeWithReset()
	}
}

func (p *Proxy) acceptLoop() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			p.group.Go(func() { p.serveConn(client) })
		}
	}
}

func (p *Proxy) serveConn(client net.Conn) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := net.Dial("tcp", target)
	if err != nil {
		resetConn(client)
		return
	}
	c := &proxiedConn{proxy: p, ends: [2]net.Conn{client, server}, done: make(chan struct{})}
	p.mu.Lock()
	p.conns[c] = true
	closed := p.closed
	p.mu.Unlock()
	if closed {
		c.closeWithReset()
		return
	}
	p.group.Go(func() { c.forward(Down) })
	c.forward(Up)
}

// Close closes all connections and ends the proxy.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	_ = p.listener.Close() // It is no longer needed.
	for c := range p.conns {
		c.closeWithReset()
	}
	p.mu.Unlock()
	p.group.Wait()
}
