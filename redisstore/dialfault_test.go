//go:build unix

package redisstore

import (
	"context"
	"io"
	"net"
	"sync"

	"github.com/holdfast-go/holdfast/drivertest"
)

// A faultyDialer dials whatever server a client finds out about, of a cluster or
// by Sentinel, and does harm to the connections: what faultproxy does where the
// address is known before.
type faultyDialer struct {
	mu    sync.Mutex
	conns map[*faultyConn]bool
	fault drivertest.Fault
	armed bool
}

func (d *faultyDialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &faultyConn{Conn: conn, d: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conns == nil {
		d.conns = map[*faultyConn]bool{}
	}
	d.conns[c] = true
	return c, nil
}

// arm has the next request of a verb, on whichever connection, or the answer to
// it, be lost together with the connection.
func (d *faultyDialer) arm(f drivertest.Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault, d.armed = f, true
}

// strikes reports whether this is the request to be harmed, and how.
func (d *faultyDialer) strikes(request []byte) (drivertest.Fault, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	match := isScript
	if d.fault == drivertest.RequestLost {
		match = isRequest
	}
	if !d.armed || !match(request) {
		return 0, false
	}
	d.armed = false
	return d.fault, true
}

// sever cuts all connections.
func (d *faultyDialer) sever() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		_ = c.Conn.Close() // It may be closed already.
	}
	clear(d.conns)
}

// A faultyConn is a connection that can lose what it carries.
type faultyConn struct {
	net.Conn
	d *faultyDialer

	mu       sync.Mutex
	loseNext bool // the next answer
}

func (c *faultyConn) Write(request []byte) (int, error) {
	fault, strikes := c.d.strikes(request)
	if !strikes {
		return c.Conn.Write(request)
	}
	if fault == drivertest.RequestLost {
		_ = c.Conn.Close()
		return len(request), nil // As far as a sender can tell.
	}
	c.mu.Lock()
	c.loseNext = true
	c.mu.Unlock()
	return c.Conn.Write(request)
}

func (c *faultyConn) Read(answer []byte) (int, error) {
	n, err := c.Conn.Read(answer)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loseNext && n > 0 { // The server has carried it out.
		_ = c.Conn.Close()
		return 0, io.EOF
	}
	return n, err
}
