package redisstore

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// newClient makes the client. Its requests end with their contexts, and it leaves retries to
// package holdfast.
func (t *target) newClient() (redis.UniversalClient, error) {
	options := &redis.UniversalOptions{
		Addrs: t.addrs, DB: t.db, Username: t.user, Password: t.password, TLSConfig: t.tls, Dialer: t.newDialer(),
		SentinelUsername: t.sentinelUser, SentinelPassword: t.sentinelPassword,
		ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1,
	}
	path := t.path
	switch {
	case t.scheme == "redis+cluster":
		if len(path) > 0 {
			return nil, fmt.Errorf("%w: a cluster has no numbered databases", driver.ErrInvalid)
		}
		options.IsClusterMode = true
	case t.scheme == "redis+sentinel":
		if len(path) == 0 {
			return nil, fmt.Errorf("%w: want redis+sentinel://host:port/master, with the name that the Sentinels know", driver.ErrInvalid)
		}
		options.MasterName, path = path[0], path[1:]
	}
	if len(path) > 0 {
		var err error
		if options.DB, err = strconv.Atoi(path[0]); err != nil || options.DB < 0 || len(path) > 1 {
			return nil, fmt.Errorf("%w: the database in the path is not a number", driver.ErrInvalid)
		}
	}
	return redis.NewUniversalClient(options), nil
}

// handshakeTimeout bounds the time to get a TLS connection. It is less than a request may take. So
// a server that does not speak TLS, and waits for the end of what it takes for a command, is
// reported as such.
const handshakeTimeout = 2 * time.Second

// newDialer returns a dialer with errors that show what TLS has failed at, and that the server has
// too many clients.
func (t *target) newDialer() func(ctx context.Context, network, addr string) (net.Conn, error) {
	plain := net.Dialer{Timeout: dialTimeout}
	if t.tls == nil {
		return func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := plain.DialContext(ctx, network, addr)
			if tcp, ok := conn.(*net.TCPConn); ok {
				return &limitCheckedConn{TCPConn: tcp}, nil
			}
			return conn, err
		}
	}
	dialer := tls.Dialer{NetDialer: &plain, Config: t.tls}
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

func (g *limitCheckedConn) Read(b []byte) (int, error) {
	if g.refusal != nil {
		return 0, g.refusal
	}
	n, err := g.TCPConn.Read(b)
	if g.firstRead {
		return n, err
	}
	g.firstRead = true
	if bytes.HasPrefix(b[:n], []byte("-ERR max number of clients")) {
		g.refusal = errTooManyClients
		return 0, g.refusal
	}
	return n, err
}
