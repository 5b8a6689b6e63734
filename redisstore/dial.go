package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// handshakeTimeout bounds the time to get a TLS connection. It is less than a request may take, so
// that a server without TLS, which waits for the rest of a command, is reported as one.
const handshakeTimeout = 2 * time.Second

// dialerOfTLS returns a dialer with errors that show what TLS has failed at.
func dialerOfTLS(config *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	dialer := tls.Dialer{Config: config}
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
