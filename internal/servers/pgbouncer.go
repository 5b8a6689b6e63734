//go:build unix

package servers

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// PgBouncer is a PgBouncer in front of a PostgreSQL.
type PgBouncer struct {
	*Process
	Addr string // host:port
}

// StartPgBouncer starts a PgBouncer in front of p, in transaction mode unless the args contain
// another. The args are configuration, as in "pool_mode=session".
func StartPgBouncer(tb testing.TB, p *Postgres, args ...string) *PgBouncer {
	tb.Helper()
	host, port, err := net.SplitHostPort(p.Addr)
	if err != nil {
		tb.Fatal(err)
	}
	dir, own := postgresDir(tb), strconv.Itoa(freePort(tb))
	settings := append([]string{
		"pool_mode=transaction", "listen_addr=127.0.0.1", "listen_port=" + own, "unix_socket_dir=",
		"auth_type=any", "max_client_conn=1000", "default_pool_size=10", "ignore_startup_parameters=extra_float_digits",
	}, args...)
	text := fmt.Sprintf("[databases]\n* = host=%s port=%s user=postgres\n[pgbouncer]\n%s\n", host, port, strings.Join(settings, "\n"))
	config := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
	b := &PgBouncer{Addr: net.JoinHostPort("127.0.0.1", own)}
	b.Process = runServer(tb, serverSpec{
		name:  "pgbouncer",
		path:  findProgram(tb, "pgbouncer"),
		args:  []string{config},
		dir:   dir,
		ready: func() error { return connectPostgres(b.URL("postgres")) },
		user:  unprivileged(tb),
	})
	return b
}

// URL returns the address of a database of the server behind the PgBouncer.
func (b *PgBouncer) URL(database string) string { return postgresURL(b.Addr, database) }
