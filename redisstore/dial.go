package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// client makes the client. Its requests end with their contexts, and it leaves
// trying again to package holdfast.
func (t *target) client() (redis.UniversalClient, error) {
	switch t.scheme {
	case "redis+cluster":
		if len(t.path) > 0 {
			return nil, fmt.Errorf("%w: a cluster has no numbered databases", driver.ErrInvalid)
		}
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: t.addrs, Username: t.user, Password: t.password, TLSConfig: t.tls, Dialer: t.dialer(),
			ContextTimeoutEnabled: true, DialerRetries: 1,
		}), nil
	case "redis+sentinel":
		return t.sentinelClient()
	}
	db, err := database(t.path)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(&redis.Options{
		Addr: t.addrs[0], Username: t.user, Password: t.password, DB: db, TLSConfig: t.tls, Dialer: t.dialer(),
		ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1,
	}), nil
}

func (t *target) sentinelClient() (redis.UniversalClient, error) {
	if len(t.path) == 0 {
		return nil, fmt.Errorf("%w: want redis+sentinel://host:port/master, with the name that the Sentinels know", driver.ErrInvalid)
	}
	db, err := database(t.path[1:])
	if err != nil {
		return nil, err
	}
	return redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: t.path[0], SentinelAddrs: t.addrs,
		SentinelUsername: t.sentinelUser, SentinelPassword: t.sentinelPassword,
		Username: t.user, Password: t.password, DB: db, TLSConfig: t.tls, Dialer: t.dialer(),
		ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1,
	}), nil
}

// handshakeBound is how long it may take to get a TLS connection. It is less than
// a request may take, so that a server that does not speak TLS, and waits for the
// end of what it takes for a command, is reported as such.
const handshakeBound = 2 * time.Second

// dialer returns a dialer that tells of TLS what has failed; nil, which is the
// client library's own, without TLS.
func (t *target) dialer() func(ctx context.Context, network, addr string) (net.Conn, error) {
	if t.tls == nil {
		return nil
	}
	dialer := tls.Dialer{Config: t.tls}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, handshakeBound)
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
