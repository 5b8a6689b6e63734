//go:build unix

package advisory

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// The suite's faults and severed connections are not offered: it expects holds to outlive the
// connection. Nor is silence: what the store knows it answers without the server. fault_test.go has
// what becomes of these.
func TestConformance(t *testing.T) {
	for _, name := range []string{"tokens", "plain"} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, drivertest.Harness{Walk: name == "plain" && os.Getenv("TEST_WHOLE") == "", New: func(tb testing.TB) drivertest.Backing {
				server := pgtest.Postgres()
				if strings.Contains(tb.Name(), "restart") {
					server = servers.StartPostgres(tb)
				}
				var ways sync.Map // from a store to its proxy
				opts := keysOf(tb)
				if name == "tokens" {
					opts.TokenSequence = fmt.Sprint("tokens ", time.Now().UnixNano()) // A case may be repeated.
				}
				if err := open(tb, server.Addr, opts).Migrate(tb.Context()); err != nil {
					tb.Fatal(err)
				}
				return drivertest.Backing{
					Restart: func(testing.TB) { server.Restart() },
					Open: func(tb testing.TB) driver.Store {
						proxy := faultproxy.Start(tb, server.Addr)
						s := open(tb, proxy.Addr(), opts)
						ways.Store(s, proxy)
						return s
					},
					Crash: func(_ testing.TB, s driver.Store) {
						way, _ := ways.Load(s)
						way.(*faultproxy.Proxy).Reset()
					},
				}
			}})
		})
	}
}
