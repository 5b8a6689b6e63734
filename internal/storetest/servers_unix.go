//go:build unix

package storetest

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
	_ "github.com/holdfast-go/holdfast/pgstore"          // postgres:
	_ "github.com/holdfast-go/holdfast/pgstore/advisory" // postgres+advisory:
	"github.com/holdfast-go/holdfast/quorumstore"
	_ "github.com/holdfast-go/holdfast/redisstore" // redis:
)

func init() {
	logging.Disable() // connections are cut on purpose
	storeKinds = append(storeKinds,
		storeKind{name: "redis", start: func(tb testing.TB) *Store {
			return startRedis(tb, 1, func(urls ...string) string { return urls[0] })
		}},
		storeKind{name: "quorum", start: func(tb testing.TB) *Store {
			return startRedis(tb, 3, quorumstore.URL)
		}},
		storeKind{name: "postgres", start: func(tb testing.TB) *Store {
			return startPostgres(tb, "postgres", "")
		}},
		storeKind{name: "postgres-advisory", start: func(tb testing.TB) *Store {
			return startPostgres(tb, "postgres+advisory", "&tokens=holdfast_tokens")
		}},
	)
}

func startRedis(tb testing.TB, n int, url func(nodes ...string) string) *Store {
	tb.Helper()
	s := &Store{url: func(servers []string) string {
		var urls []string
		for _, addr := range servers {
			urls = append(urls, "redis://"+addr)
		}
		return url(urls...)
	}}
	for _, node := range servers.StartRedises(tb, n) {
		s.servers = append(s.servers, node.Addr)
	}
	return s
}

func startPostgres(tb testing.TB, scheme, options string) *Store {
	tb.Helper()
	server := servers.StartPostgres(tb)
	url := scheme + strings.TrimPrefix(server.URL("postgres"), "postgres") + options
	client, err := holdfast.Open(context.Background(), url, nil)
	if err != nil {
		tb.Fatal(err)
	}
	defer client.Close()
	store := client.Store().(interface{ Migrate(context.Context) error })
	if err := store.Migrate(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return &Store{
		servers: []string{server.Addr},
		url: func(servers []string) string {
			return strings.Replace(url, server.Addr, servers[0], 1)
		},
	}
}

// A Link is a connection path to a store that a test can cut.
type Link struct {
	// URL opens the store through the link.
	URL     string
	proxies []*faultproxy.Proxy
}

// Link creates a link to the store, which must be one with a network.
func (s *Store) Link(tb testing.TB) *Link {
	tb.Helper()
	l := &Link{}
	var addrs []string
	for _, addr := range s.servers {
		proxy := faultproxy.Start(tb, addr)
		l.proxies, addrs = append(l.proxies, proxy), append(addrs, proxy.Addr())
	}
	l.URL = s.url(addrs)
	return l
}

// Networked reports whether the store is reached over a network, which can be cut.
func (s *Store) Networked() bool { return len(s.servers) > 0 }

// Cut drops everything in both directions from now on, of a single server, or of most of those of a
// quorum: the others cannot grant a lock together.
func (l *Link) Cut() {
	for _, p := range l.proxies[:len(l.proxies)/2+1] {
		p.Hold(faultproxy.Up)
		p.Hold(faultproxy.Down)
	}
}

// Mend ends Cut. The connections of before are lost, as after a long outage:
// what was sent on them must not arrive now.
func (l *Link) Mend() {
	for _, p := range l.proxies {
		p.Reset()
		p.Pass(faultproxy.Up)
		p.Pass(faultproxy.Down)
	}
}
