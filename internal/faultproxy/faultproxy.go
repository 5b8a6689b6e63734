// Package faultproxy is a TCP proxy that does harm, for trials of stores that
// speak to a server: it delays, loses a request or the answer to one, holds
// back what is sent one way or both, and cuts connections.
//
// The faults can be set at any moment and concern all connections. Bytes of a
// connection are never reordered, and none is lost unless the connection is cut
// then, as in TCP itself.
package faultproxy

import (
	"errors"
	"net"
	"sync"
	"time"
)

// A Direction is one way through a proxy.
type Direction int

const (
	// Up is from the client to the server.
	Up Direction = iota

	// Down is from the server to the client.
	Down
)

// A Proxy passes connections on to a server.
type Proxy struct {
	target   string
	listener net.Listener
	group    sync.WaitGroup
	traffic  [2]counter

	mu     sync.Mutex
	closed bool
	links  map[*link]bool
	delay  [2]span
	gate   [2]chan struct{} // closed to let bytes through; nil if open
	loss   *loss
}

// A span is a range of durations.
type span struct{ min, max time.Duration }

// A TB is what Start needs of a test.
type TB interface {
	Helper()
	Fatal(...any)
	Cleanup(func())
}

// Start starts a proxy to a server at the address target. It ends with the
// test.
func Start(tb TB, target string) *Proxy {
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
	p := &Proxy{target: target, listener: listener, links: map[*link]bool{}}
	p.group.Go(p.accept)
	return p, nil
}

// Addr returns the address to connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Delay makes everything that goes one way take a time between min and max, at
// random, longer than it would. Zeros end that.
func (p *Proxy) Delay(way Direction, min, max time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay[way] = span{min, max}
}

// Hold lets nothing pass one way until Pass: connections stay open, and what is
// sent arrives late or, if the connection is cut meanwhile, never. Hold of both
// ways is a network that swallows everything; new connections seem to succeed.
func (p *Proxy) Hold(way Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate[way] == nil {
		p.gate[way] = make(chan struct{})
	}
}

// Pass ends Hold.
func (p *Proxy) Pass(way Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate[way] != nil {
		close(p.gate[way])
		p.gate[way] = nil
	}
}

// LoseRequest loses the next request that matches, on whichever connection, and
// cuts that connection. A request is what is read from the client at once. A
// nil match is any request.
func (p *Proxy) LoseRequest(match func(request []byte) bool) {
	p.lose(&loss{match: match})
}

// LoseReply passes on the next request that matches, waits for the answer, and
// cuts the connection instead of passing the answer on.
func (p *Proxy) LoseReply(match func(request []byte) bool) {
	p.lose(&loss{match: match, reply: true})
}

func (p *Proxy) lose(l *loss) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loss = l
}

// Reset cuts all connections at once with a TCP reset. New ones succeed.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
}

// Connections reports how many connections there are.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			p.group.Go(func() { p.serve(client) })
		}
	}
}

func (p *Proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		reset(client)
		return
	}
	l := &link{p: p, ends: [2]net.Conn{client, server}, over: make(chan struct{})}
	if !p.add(l) {
		l.cut()
		return
	}
	p.group.Go(func() { l.pump(Down) })
	l.pump(Up)
}

// add registers a link, unless the proxy is closed.
func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.links[l] = true
	}
	return !p.closed
}

// Close cuts all connections and ends the proxy.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	_ = p.listener.Close() // It has served its purpose.
	for l := range p.links {
		l.cut()
	}
	p.mu.Unlock()
	p.group.Wait()
}
