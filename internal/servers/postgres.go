//go:build unix

package servers

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Postgres is a PostgreSQL server. Every user of this host may connect to it as the superuser
// "postgres". Kill ends it without a checkpoint, as a crash does.
type Postgres struct {
	*Process
	Addr string // host:port
	dir  string // of the data
}

// StartPostgres starts a PostgreSQL with an empty cluster: UTF-8, locale C, fsync on. The args are
// configuration, as in "fsync=off".
func StartPostgres(tb testing.TB, args ...string) *Postgres {
	tb.Helper()
	dir := postgresDir(tb)
	createCluster(tb, dir)
	return startPostgres(tb, dir, args...)
}

// StartPostgresStandby starts a hot standby of p that streams from it. Its application_name, for
// synchronous_standby_names of the primary, is name.
func StartPostgresStandby(tb testing.TB, p *Postgres, name string, args ...string) *Postgres {
	tb.Helper()
	dir := postgresDir(tb)
	host, port, err := net.SplitHostPort(p.Addr)
	if err != nil {
		tb.Fatal(err)
	}
	conninfo := fmt.Sprintf("host=%s port=%s user=postgres application_name=%s", host, port, name)
	postgresTool(tb, "pg_basebackup", "--pgdata", filepath.Join(dir, "data"), "--dbname", conninfo,
		"--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync")
	return startPostgres(tb, dir, args...)
}

// startPostgres starts a server on the data in the folder dir.
func startPostgres(tb testing.TB, dir string, args ...string) *Postgres {
	tb.Helper()
	port := freePort(tb)
	p := &Postgres{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), dir: filepath.Join(dir, "data")}
	options := []string{"-D", p.dir}
	for _, setting := range append([]string{
		"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(port), "unix_socket_directories=",
		"shared_buffers=32MB", "log_timezone=UTC",
	}, args...) {
		options = append(options, "-c", setting)
	}
	p.Process = runServer(tb, serverSpec{
		name:  "postgres",
		path:  postgresProgram(tb, "postgres"),
		args:  options,
		dir:   dir,
		ready: func() error { return connectPostgres(p.URL("postgres")) },
		user:  unprivileged(tb),

		// It ends its children and frees its shared memory. There is no checkpoint.
		kill: syscall.SIGQUIT, children: true,
	})
	return p
}

// URL returns the address of a database of the server, as the superuser.
func (p *Postgres) URL(database string) string { return postgresURL(p.Addr, database) }

func postgresURL(addr, database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: addr, Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

// Promote makes a standby a primary, and returns when it accepts writes.
func (p *Postgres) Promote() {
	p.tb.Helper()
	postgresTool(p.tb, "pg_ctl", "promote", "--wait", "--pgdata", p.dir)
}

// postgresDir creates a folder that the user that runs the server can use. TB.TempDir does not when
// root runs the test.
func postgresDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "holdfast-postgres-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	if user := unprivileged(tb); user != nil {
		if err := os.Chown(dir, int(user.Uid), int(user.Gid)); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

// connectPostgres returns nil if the server at a URL accepts the superuser.
func connectPostgres(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgconn.Connect(ctx, url)
	if err != nil {
		return err
	}
	_ = conn.Close(ctx) // The server has answered.
	return nil
}
