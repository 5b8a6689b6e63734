package redisstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

func init() {
	for _, scheme := range []string{"redis", "rediss", "redis+sentinel", "redis+cluster"} {
		driver.Register(scheme, openURL)
	}
}

// A target is what a URL says.
type target struct {
	scheme         string
	addrs          []string
	user, password string
	path           []string
	tls            *tls.Config

	sentinelUser, sentinelPassword string
}

// openURL makes a store with a client of its own. Nothing is dialled.
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
	client, err := t.client()
	if err != nil {
		return nil, err
	}
	s := New(client, opts)
	s.owned = true
	if s.misuse != nil {
		_ = s.Close() // Nothing was done with it.
		return nil, s.misuse
	}
	return s, nil
}

func readTarget(u *url.URL, query *driver.Query) (*target, error) {
	if u.Opaque != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%w: want %s://host:port", driver.ErrInvalid, u.Scheme)
	}
	port := "6379"
	if u.Scheme == "redis+sentinel" {
		port = "26379"
	}
	t := &target{scheme: u.Scheme, addrs: []string{address(u.Host, port)}, user: u.User.Username()}
	t.password, _ = u.User.Password()
	if path := strings.Trim(u.Path, "/"); path != "" {
		t.path = strings.Split(path, "/")
	}
	secure := u.Scheme == "rediss"
	if many := u.Scheme == "redis+sentinel" || u.Scheme == "redis+cluster"; many {
		for node := range strings.SplitSeq(query.String("nodes", ""), ",") {
			if node != "" {
				t.addrs = append(t.addrs, address(node, port))
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

// address adds what is missing to host:port.
func address(hostPort, port string) string {
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

// database reads the number of a database from the rest of a path.
func database(path []string) (int, error) {
	if len(path) == 0 {
		return 0, nil
	}
	db, err := strconv.Atoi(path[0])
	if err != nil || db < 0 || len(path) > 1 {
		return 0, fmt.Errorf("%w: the database in the path is not a number", driver.ErrInvalid)
	}
	return db, nil
}
