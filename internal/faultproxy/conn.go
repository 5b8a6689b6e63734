package faultproxy

import (
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A lossRule selects a request to be lost, or to have its reply lost.
type lossRule struct {
	match     func([]byte) bool
	loseReply bool
}

// A proxiedConn is one connection through the proxy.
type proxiedConn struct {
	proxy     *Proxy
	ends      [2]net.Conn   // of the client and of the server
	done      chan struct{} // closed when the connection is closed
	closeOnce sync.Once
	loseReply atomic.Bool // close instead of forwarding the next reply
	marked    bool        // a request matched: see Proxy.Mark; guarded by Proxy.mu
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
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // If it fails, the close below is no reset, but still a close.
	}
	_ = conn.Close() // There is nothing to do about an error.
}

// forward copies one direction until the connection is closed by the proxy or either end.
func (c *proxiedConn) forward(way Direction) {
	defer c.unregister()
	from, to := c.ends[way], c.ends[1-way]
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && way == Up {
			c.markIfMatching(buffer[:n])
		}
		if n > 0 && (!c.waitToPass(way) || !c.shouldForward(way, buffer[:n])) {
			return
		}
		if _, writeErr := to.Write(buffer[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

func (c *proxiedConn) unregister() {
	c.closeWithReset()
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	delete(c.proxy.conns, c)
}

func (c *proxiedConn) markIfMatching(request []byte) {
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	c.marked = c.marked || c.proxy.mark != nil && c.proxy.mark(request)
}

// waitToPass waits while the proxy holds back or delays this direction, and reports whether
// the connection is still open.
func (c *proxiedConn) waitToPass(way Direction) bool {
	for {
		c.proxy.mu.Lock()
		gate, delay := c.proxy.gates[way], c.proxy.delay[way]
		if gate == nil && c.marked {
			gate = c.proxy.markedGates[way]
		}
		c.proxy.mu.Unlock()
		if gate == nil {
			return c.sleepDelay(delay[0], delay[1])
		}
		select {
		case <-gate:
		case <-c.done:
			return false
		}
	}
}

func (c *proxiedConn) sleepDelay(least, most time.Duration) bool {
	if most <= 0 {
		return true
	}
	timer := time.NewTimer(least + rand.N(most-least+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.done:
		return false
	}
}

// shouldForward reports whether these bytes are forwarded. It returns false for the request
// or reply that is to be lost.
func (c *proxiedConn) shouldForward(way Direction, bytes []byte) bool {
	if way == Down {
		return !c.loseReply.Load()
	}
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	rule := c.proxy.nextLoss
	if rule == nil || rule.match != nil && !rule.match(bytes) {
		return true
	}
	c.proxy.nextLoss = nil
	c.loseReply.Store(rule.loseReply)
	return rule.loseReply
}
