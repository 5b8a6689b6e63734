//go:build unix

package recipetest

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore"
	"github.com/holdfast-go/holdfast/quorumstore"
	_ "github.com/holdfast-go/holdfast/redisstore" // redis:
)

func init() {
	logging.Disable() // connections are cut on purpose
	kinds = append(kinds,
		kind{"redis", false, func(tb testing.TB) *Store { return onRedis(tb, 1, func(urls ...string) string { return urls[0] }) }},
		kind{"quorum", false, func(tb testing.TB) *Store { return onRedis(tb, 3, quorumstore.URL) }},
		kind{"postgres", false, onPostgres},
	)
}

func onRedis(tb testing.TB, n int, url func(nodes ...string) string) *Store {
	tb.Helper()
	s := &Store{url: func(servers []string) string {
		urls := make([]string, len(servers))
		for i, addr := range servers {
			urls[i] = "redis://" + addr
		}
		return url(urls...)
	}}
	for _, node := range servers.StartRedises(tb, n) {
		s.servers = append(s.servers, node.Addr)
	}
	return s
}

func onPostgres(tb testing.TB) *Store {
	tb.Helper()
	server := servers.StartPostgres(tb)
	url := server.URL("postgres")
	client, err := holdfast.Open(context.Background(), url, nil)
	if err != nil {
		tb.Fatal(err)
	}
	defer client.Close()
	if err := client.Store().(*pgstore.Store).Migrate(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return &Store{
		servers: []string{server.Addr},
		url:     func(servers []string) string { return strings.Replace(url, server.Addr, servers[0], 1) },
	}
}

// A Link is a way to a store of one's own that can be cut.
type Link struct {
	// URL opens the store by this way.
	URL     string
	proxies []*faultproxy.Proxy
}

// Link makes a way to the store, which must be one that is reached by a
// network.
func (s *Store) Link(tb testing.TB) *Link {
	tb.Helper()
	l := &Link{}
	addrs := make([]string, len(s.servers))
	for i, addr := range s.servers {
		proxy := faultproxy.Start(tb, addr)
		l.proxies = append(l.proxies, proxy)
		addrs[i] = proxy.Addr()
	}
	l.URL = s.url(addrs)
	return l
}

// Networked reports whether the store is reached by a network, which can be cut.
func (s *Store) Networked() bool { return len(s.servers) > 0 }

// Cut swallows everything both ways from now on.
func (l *Link) Cut() {
	for _, p := range l.proxies {
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
