package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/transport"
)

func init() {
	for _, scheme := range []string{"redis", "rediss", "redis+unix", "redis+sentinel", "redis+cluster"} {
		driver.Register(scheme, openURL)
	}
}

// openURL makes a store with a client of its own. Nothing is dialed.
func openURL(_ context.Context, u *url.URL) (driver.Store, error) {
	query := driver.NewQuery(u)
	opts := &Options{
		Prefix:         query.String("prefix", DefaultPrefix),
		RestartGuard:   query.Duration("restart_guard", 0),
		MinReplicas:    query.Int("min_replicas", 0),
		ReplicaTimeout: query.Duration("replica_timeout", 0),
	}
	opts.NoPrefix = opts.Prefix == ""
	o, err := readClientOptions(u, query)
	if err == nil {
		err = query.Err()
	}
	if err != nil {
		return nil, err
	}
	s := New(redis.NewUniversalClient(o), opts)
	s.ownsClient = true
	if s.configErr != nil {
		_ = s.Close() // Nothing was done with it.
		return nil, s.configErr
	}
	return s, nil
}

// readClientOptions returns the options of the client for a URL. Its requests end with their
// contexts, and it leaves retries to package holdfast. The second version of the protocol costs the
// library less.
func readClientOptions(u *url.URL, query *driver.Query) (*redis.UniversalOptions, error) {
	if u.Opaque != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%w: want %s://host:port", driver.ErrInvalid, u.Scheme)
	}
	o := &redis.UniversalOptions{ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1, Protocol: 2, Username: u.User.Username()}
	o.Password, _ = u.User.Password()
	if u.Scheme == "redis+unix" { // The path is that of the socket, so the database is a parameter.
		o.Addrs, o.DB = []string{u.Path}, query.Int("db", 0)
		if u.Host != "" || len(u.Path) < 2 || o.DB < 0 {
			return nil, fmt.Errorf("%w: want redis+unix:///path/to/socket, with ?db= and the number of a database if it is not 0", driver.ErrInvalid)
		}
		return o, nil
	}
	if u.Hostname() == "" { // As with a variable that is not set: each host would lock alone.
		return nil, fmt.Errorf("%w: the URL names no host: want %s://host:port", driver.ErrInvalid, u.Scheme)
	}
	hosts, port, secure := []string{u.Host}, "6379", u.Scheme == "rediss"
	path := strings.Split(strings.Trim(u.Path, "/"), "/")
	if o.IsClusterMode = u.Scheme == "redis+cluster"; o.IsClusterMode && path[0] != "" {
		return nil, fmt.Errorf("%w: a cluster has no numbered databases", driver.ErrInvalid)
	}
	if u.Scheme == "redis+sentinel" {
		if path[0] == "" {
			return nil, fmt.Errorf("%w: want redis+sentinel://host:port/master, with the name that the Sentinels know", driver.ErrInvalid)
		}
		o.MasterName, path, port = path[0], path[1:], "26379"
		o.SentinelUsername, o.SentinelPassword = query.String("sentinel_user", ""), query.String("sentinel_password", "")
	}
	if o.IsClusterMode || o.MasterName != "" {
		hosts = append(hosts, strings.Split(query.String("nodes", ""), ",")...)
		secure = query.Bool("tls", false)
	}
	for _, host := range hosts {
		if at := (&url.URL{Host: host}); host != "" {
			o.Addrs = append(o.Addrs, net.JoinHostPort(at.Hostname(), cmp.Or(at.Port(), port)))
		}
	}
	if len(path) > 0 && path[0] != "" {
		var err error
		if o.DB, err = strconv.Atoi(path[0]); err != nil || o.DB < 0 || len(path) > 1 {
			return nil, fmt.Errorf("%w: the database in the path is not a number", driver.ErrInvalid)
		}
	}
	if secure {
		var err error
		if o.TLSConfig, err = transport.TLS(query); err != nil {
			return nil, err
		}
		dialer := tls.Dialer{Config: o.TLSConfig}
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, requestBound*2/3) // A server without TLS does not answer.
			defer cancel()
			conn, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				err = &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("%s over TLS: %w", addr, err)}
			}
			return conn, err
		}
	}
	return o, nil
}
