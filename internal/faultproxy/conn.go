package faultproxy

import (
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// A proxiedConn is one connection through the proxy.
type proxiedConn struct {
	proxy     *Proxy
	ends      [2]net.Conn   // of the client and of the server
	done      chan struct{} // closed when the connection is closed
	closeOnce sync.Once
	loseReply bool // close instead of forwarding the next reply; guarded by Proxy.mu
	marked    bool // a request matched: see Proxy.Mark; guarded by Proxy.mu
}

// closeWithReset closes both ends with a TCP reset.
func (c *proxiedConn) closeWithReset() {
	c.closeOnce.Do(func() {
		close(c.done)
		resetConn(c.ends[0])
		resetConn(c.ends[1])
	})
}

// resetConn closes a connection at once and discards unsent data.
func resetConn(conn net.Conn) {
	_ = conn.(*net.TCPConn).SetLinger(0) // If it fails, the close is no reset, but still a close.
	_ = conn.Close()
}

// forward copies one direction until the connection is closed by the proxy or either end.
func (c *proxiedConn) forward(way Direction) {
	defer func() {
		c.closeWithReset()
		c.proxy.mu.Lock()
		defer c.proxy.mu.Unlock()
		delete(c.proxy.conns, c)
	}()
	from, to := c.ends[way], c.ends[1-way]
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && (!c.waitToPass(way, buffer[:n]) || !c.shouldForward(way, buffer[:n])) {
			return
		}
		if _, writeErr := to.Write(buffer[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

// waitToPass waits while the proxy holds back or delays these bytes, and reports whether the
// connection is still open.
func (c *proxiedConn) waitToPass(way Direction, bytes []byte) bool {
	p := c.proxy
	for {
		p.mu.Lock()
		c.marked = c.marked || way == Up && p.mark != nil && p.mark(bytes)
		gate, delay := p.gates[way], p.delay[way]
		if gate == nil && c.marked {
			gate = p.markedGates[way]
		}
		p.mu.Unlock()
		var timer <-chan time.Time
		if gate == nil {
			if delay[1] == 0 {
				return true
			}
			timer = time.After(delay[0] + rand.N(delay[1]-delay[0]+1))
		}
		select {
		case <-gate:
		case <-timer:
			return true
		case <-c.done:
			return false
		}
	}
}

// shouldForward reports whether these bytes are forwarded. It returns false for the request or
// reply that is to be lost.
func (c *proxiedConn) shouldForward(way Direction, bytes []byte) bool {
	p := c.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	if way == Down {
		if c.loseReply {
			p.lostReplies++
		}
		return !c.loseReply
	}
	if !p.losing || p.match != nil && !p.match(bytes) {
		return true
	}
	p.losing, c.loseReply = false, p.loseReply
	return c.loseReply
}
