//go:build unix

package pgstore

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// With faults, and with statements that go to the server in one piece, so that a fault hits the
// statement that a case means.
func TestConformancePool(t *testing.T) {
	t.Parallel()
	pgtest.Postgres()
	drivertest.Run(t, drivertest.Harness{New: func(tb testing.TB) drivertest.Backing {
		server, schema := place(tb)
		p := proxies{of: map[driver.Store]*faultproxy.Proxy{}}
		return drivertest.Backing{
			Open: func(tb testing.TB) driver.Store {
				proxy := faultproxy.Start(tb, server.Addr)
				url := strings.Replace(server.URL("postgres"), server.Addr, proxy.Addr(), 1)
				return p.add(New(pgtest.OpenPool(tb, url, "default_query_exec_mode=exec"), &Options{Schema: schema}), proxy)
			},
			Fault:   p.fault,
			Sever:   func(_ testing.TB, s driver.Store) { p.get(s).Reset() },
			Silence: func(_ testing.TB, s driver.Store) { p.get(s).Hold(faultproxy.Down) }, // until the proxy is closed
			Restart: func(tb testing.TB) {
				// The suite takes a name again that was released before a crash.
				pgtest.Execute(tb, server.URL("postgres"), "CHECKPOINT")
				server.Restart()
			},
		}
	}})
}

// With a server whose transactions are serializable by default.
func TestConformanceSerializable(t *testing.T) {
	t.Parallel()
	pgtest.Postgres()
	drivertest.Run(t, drivertest.Harness{Walk: os.Getenv("TEST_WHOLE") == "", New: func(tb testing.TB) drivertest.Backing {
		schema := newSchema(tb)
		return drivertest.Backing{Open: func(tb testing.TB) driver.Store {
			pool := pgtest.OpenPool(tb, pgtest.Postgres().URL("postgres"), "default_transaction_isolation=serializable")
			return New(pool, &Options{Schema: schema})
		}}
	}})
}

func TestConformanceSQL(t *testing.T) {
	t.Parallel()
	pgtest.Postgres()
	drivertest.Run(t, drivertest.Harness{Walk: os.Getenv("TEST_WHOLE") == "", New: func(tb testing.TB) drivertest.Backing {
		schema := newSchema(tb)
		return drivertest.Backing{Open: func(tb testing.TB) driver.Store {
			return NewDB(pgtest.OpenSQL(tb, pgtest.Postgres().URL("postgres")), &Options{Schema: schema})
		}}
	}})
}

// Behind a pooler that gives every transaction another connection, with and without the address of
// the server itself.
func TestConformancePgBouncer(t *testing.T) {
	t.Parallel()
	pgtest.PgBouncer()
	for name, listen := range map[string]string{"direct": pgtest.Postgres().URL("postgres"), "looks": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drivertest.Run(t, drivertest.Harness{Walk: os.Getenv("TEST_WHOLE") == "", New: func(tb testing.TB) drivertest.Backing {
				schema := newSchema(tb)
				return drivertest.Backing{Open: func(tb testing.TB) driver.Store {
					s := New(pgtest.OpenPool(tb, pgtest.PgBouncer().URL("postgres")), &Options{Schema: schema, Listen: listen})
					if listen == "" {
						return struct{ driver.Store }{s} // It sends no notices.
					}
					return s
				}}
			}})
		})
	}
}

// place returns an empty schema: for the cases that restart the server, of one of their own.
func place(tb testing.TB) (*servers.Postgres, string) {
	if !strings.Contains(tb.Name(), "restart") {
		return pgtest.Postgres(), newSchema(tb)
	}
	server := servers.StartPostgres(tb)
	migrate(tb, server.URL("postgres"), nil)
	return server, DefaultSchema
}

// proxies are those through which stores reach their server.
type proxies struct {
	mu sync.Mutex
	of map[driver.Store]*faultproxy.Proxy
}

func (p *proxies) add(s driver.Store, proxy *faultproxy.Proxy) driver.Store {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of[s] = proxy
	return s
}

func (p *proxies) get(s driver.Store) *faultproxy.Proxy {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[s]
}

// fault checks that a reply is lost: the suite lets a store know it in spite of that.
func (p *proxies) fault(tb testing.TB, s driver.Store, f drivertest.Fault) {
	proxy := p.get(s)
	if f == drivertest.RequestLost {
		proxy.LoseRequest(isStatement)
		return
	}
	before := proxy.LostReplies()
	proxy.LoseReply(isStatement)
	tb.Cleanup(func() {
		if proxy.LostReplies() == before {
			tb.Error("no reply was lost")
		}
	})
}

// isStatement reports whether a request is of a verb.
func isStatement(request []byte) bool {
	return bytes.Contains(request, []byte("FROM ")) && !bytes.Contains(request, []byte("tell("))
}
