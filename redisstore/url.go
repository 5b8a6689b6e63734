package redisstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

func init() {
	for _, scheme := range []string{"redis", "rediss", "redis+unix", "redis+sentinel", "redis+cluster"} {
		driver.Register(scheme, openURL)
	}
}

// A target is the contents of a URL.
type target struct {
	scheme         string
	addrs          []string
	user, password string
	path           []string
	db             int // of a socket
	tls            *tls.Config

	sentinelUser, sentinelPassword string
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
	t, err := readTarget(u, query)
	if err != nil {
		return nil, err
	}
	if err := query.Err(); err != nil {
		return nil, err
	}
	client, err := t.newClient()
	if err != nil {
		return nil, err
	}
	s := New(client, opts)
	s.ownsClient = true
	if s.configErr != nil {
		_ = s.Close() // Nothing was done with it.
		return nil, s.configErr
	}
	return s, nil
}

func readTarget(u *url.URL, query *driver.Query) (*target, error) {
	if u.Opaque != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%w: want %s://host:port", driver.ErrInvalid, u.Scheme)
	}
	if u.Scheme == "redis+unix" {
		return readSocket(u, query)
	}
	if u.Hostname() == "" { // As with a variable that is not set: each host would lock alone.
		return nil, fmt.Errorf("%w: the URL names no host: want %s://host:port", driver.ErrInvalid, u.Scheme)
	}
	port := "6379"
	if u.Scheme == "redis+sentinel" {
		port = "26379"
	}
	t := &target{scheme: u.Scheme, addrs: []string{withDefaultPort(u.Host, port)}, user: u.User.Username()}
	t.password, _ = u.User.Password()
	if path := strings.Trim(u.Path, "/"); path != "" {
		t.path = strings.Split(path, "/")
	}
	secure := u.Scheme == "rediss"
	if many := u.Scheme == "redis+sentinel" || u.Scheme == "redis+cluster"; many {
		for node := range strings.SplitSeq(query.String("nodes", ""), ",") {
			if node != "" {
				t.addrs = append(t.addrs, withDefaultPort(node, port))
			}
		}
		secure = query.Bool("tls", false)
	}
	if u.Scheme == "redis+sentinel" {
		t.sentinelUser = query.String("sentinel_user", "")
		t.sentinelPassword = query.String("sentinel_password", "")
	}
	if secure {
		return t, t.readTLS(query)
	}
	return t, nil
}

// readSocket reads the URL of a server that listens on a socket of this host. The path is that of
// the socket, so the database is a parameter.
func readSocket(u *url.URL, query *driver.Query) (*target, error) {
	t := &target{scheme: u.Scheme, addrs: []string{u.Path}, db: query.Int("db", 0), user: u.User.Username()}
	t.password, _ = u.User.Password()
	if u.Host != "" || len(u.Path) < 2 || t.db < 0 {
		return nil, fmt.Errorf("%w: want redis+unix:///path/to/socket, with ?db= and the number of a database if it is not 0", driver.ErrInvalid)
	}
	return t, nil
}

// withDefaultPort adds the missing parts to host:port.
func withDefaultPort(hostPort, port string) string {
	if host, given, err := net.SplitHostPort(hostPort); err == nil {
		if given != "" {
			port = given
		}
		hostPort = host
	}
	host := strings.Trim(hostPort, "[]")
	if host == "" {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

func (t *target) readTLS(query *driver.Query) error {
	t.tls = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: query.String("server_name", "")}
	cert, key := query.String("cert_file", ""), query.String("key_file", "")
	if (cert == "") != (key == "") {
		return fmt.Errorf("%w: cert_file and key_file belong together", driver.ErrInvalid)
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("%w: cert_file and key_file: %w", driver.ErrInvalid, err)
		}
		t.tls.Certificates = []tls.Certificate{pair}
	}
	path := query.String("ca_file", "")
	if path == "" {
		return nil
	}
	pem, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%w: ca_file: %w", driver.ErrInvalid, err)
	}
	t.tls.RootCAs = x509.NewCertPool()
	if !t.tls.RootCAs.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%w: ca_file has no certificate in PEM", driver.ErrInvalid)
	}
	return nil
}
