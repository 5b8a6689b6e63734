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
		server, schema := pgtest.Postgres(), ""
		if strings.Contains(tb.Name(), "restart") {
			server = servers.StartPostgres(tb)
			migrate(tb, server.URL("postgres"), nil)
		} else {
			schema = newSchema(tb)
		}
		var ways sync.Map // from a store to its proxy
		way := func(s driver.Store) *faultproxy.Proxy {
			proxy, _ := ways.Load(s)
			return proxy.(*faultproxy.Proxy)
		}
		return drivertest.Backing{
			Open: func(tb testing.TB) driver.Store {
				proxy := faultproxy.Start(tb, server.Addr)
				url := strings.Replace(server.URL("postgres"), server.Addr, proxy.Addr(), 1)
				s := New(pgtest.OpenPool(tb, url, "default_query_exec_mode=exec"), &Options{Schema: schema})
				ways.Store(s, proxy)
				return s
			},
			Fault: func(tb testing.TB, s driver.Store, f drivertest.Fault) {
				proxy := way(s)
				if f == drivertest.RequestLost {
					proxy.LoseRequest(isStatement)
					return
				}
				before := proxy.LostReplies()
				proxy.LoseReply(isStatement)
				tb.Cleanup(func() { // The suite lets a store know the result in spite of that.
					if proxy.LostReplies() == before {
						tb.Error("no reply was lost")
					}
				})
			},
			Sever:   func(_ testing.TB, s driver.Store) { way(s).Reset() },
			Silence: func(_ testing.TB, s driver.Store) { way(s).Hold(faultproxy.Down) }, // until the proxy is closed
			Restart: func(tb testing.TB) {
				// The suite takes a name again that was released before a crash.
				pgtest.Execute(tb, server.URL("postgres"), "CHECKPOINT")
				server.Restart()
			},
		}
	}})
}

// isStatement reports whether a request is of a verb.
func isStatement(request []byte) bool {
	return bytes.Contains(request, []byte("FROM ")) && !bytes.Contains(request, []byte("tell("))
}

// The ways to the server: one whose transactions are serializable by default, package database/sql,
// and a pooler that gives every transaction another connection, with and without the address of the
// server itself.
func TestConformanceVariants(t *testing.T) {
	t.Parallel()
	direct, pooled := pgtest.Postgres().URL("postgres"), pgtest.PgBouncer().URL("postgres")
	for name, open := range map[string]func(tb testing.TB, schema string) driver.Store{
		"serializable": func(tb testing.TB, schema string) driver.Store {
			return New(pgtest.OpenPool(tb, direct, "default_transaction_isolation=serializable"), &Options{Schema: schema})
		},
		"sql": func(tb testing.TB, schema string) driver.Store {
			return NewDB(pgtest.OpenSQL(tb, direct), &Options{Schema: schema})
		},
		"pooler": func(tb testing.TB, schema string) driver.Store {
			return New(pgtest.OpenPool(tb, pooled), &Options{Schema: schema, Listen: direct})
		},
		"pooler alone": func(tb testing.TB, schema string) driver.Store { // It sends no notices.
			return struct{ driver.Store }{New(pgtest.OpenPool(tb, pooled, "default_query_exec_mode=describe_exec"), &Options{Schema: schema})}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drivertest.Run(t, drivertest.Harness{Walk: os.Getenv("TEST_WHOLE") == "", New: func(tb testing.TB) drivertest.Backing {
				schema := newSchema(tb)
				return drivertest.Backing{Open: func(tb testing.TB) driver.Store { return open(tb, schema) }}
			}})
		})
	}
}
