package redisstore

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// handshakeTimeout bounds the time to get a TLS connection. It is less than a request may take. So
// a server that does not speak TLS, and waits for the end of what it takes for a command, is
// reported as such.
const handshakeTimeout = 2 * time.Second

// newDialer returns a dialer with errors that show what TLS has failed at, and that the server has
// too many clients.
func newDialer(config *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	plain := net.Dialer{Timeout: dialTimeout}
	if config == nil {
		return func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := plain.DialContext(ctx, network, addr)
			if tcp, ok := conn.(*net.TCPConn); ok {
				return &limitCheckedConn{TCPConn: tcp}, nil
			}
			return conn, err
		}
	}
	dialer := tls.Dialer{NetDialer: &plain, Config: config}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
		defer cancel()
		conn, err := dialer.DialContext(ctx, network, addr)
		if op := (*net.OpError)(nil); err == nil || errors.As(err, &op) && op.Op == "dial" {
			return conn, err
		}
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer of TLS (does the server speak it?): %w", err)
		}
		return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("%s: TLS: %w", addr, err)}
	}
}

// dialTimeout bounds the time to get a connection.
const dialTimeout = 5 * time.Second

// errTooManyClients is the error of a connection that a server with too many clients has refused.
var errTooManyClients = errors.New("the server has reached its max number of clients")

// A limitCheckedConn fails if a server with too many clients refuses it, which the server does as
// soon as there is the connection. The client library takes the refusal for a reply to its own
// first command, and reports a reset connection later on. Only that command has been sent when the
// first reply is read.
type limitCheckedConn struct {
	*net.TCPConn
	firstRead bool
	refusal   error // of every read, once the server has refused the connection
}

func (c *limitCheckedConn) Read(b []byte) (int, error) {
	if c.refusal != nil {
		return 0, c.refusal
	}
	n, err := c.TCPConn.Read(b)
	if c.firstRead {
		return n, err
	}
	c.firstRead = true
	if bytes.HasPrefix(b[:n], []byte("-ERR max number of clients")) {
		c.refusal = errTooManyClients
		return 0, c.refusal
	}
	return n, err
}
