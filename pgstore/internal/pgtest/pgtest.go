//go:build unix

package pgtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"database/sql"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/driver"
)

// Bound is how long anything may take that must happen in the end.
const Bound = 20 * time.Second

// OpenPool returns a pool that ends with the test. The parameters are of a
// URL, as in "pool_max_conns=1".
func OpenPool(tb testing.TB, url string, parameters ...string) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.New(context.Background(), strings.Join(append([]string{url}, parameters...), "&"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// OpenSQL is OpenPool for database/sql.
func OpenSQL(tb testing.TB, url string, parameters ...string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("pgx", strings.Join(append([]string{url}, parameters...), "&"))
	if err != nil {
		tb.Fatal(err)
	}
	db.SetMaxOpenConns(20) // else it would take all that the server has, and fail
	db.SetMaxIdleConns(20) // else it would make a connection for nearly every call of a crowd
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// Execute runs statements on a connection of its own.
func Execute(tb testing.TB, url, text string, args ...any) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Bound)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, text, args...); err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
}

// QueryValue runs a statement and returns the first column of its row.
func QueryValue[T any](t *testing.T, pool *pgxpool.Pool, text string, args ...any) T {
	t.Helper()
	var value T
	if err := pool.QueryRow(t.Context(), text, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return value
}

var owners atomic.Int64

// Request returns a request of an owner of its own.
func Request(name string, ttl time.Duration) driver.AcquireRequest {
	return driver.AcquireRequest{Name: name, Owner: fmt.Sprintf("SecretOwner%08d", owners.Add(1)), Holder: "host/1/x", TTL: ttl}
}

// Renewals returns the requests that renew what was acquired.
func Renewals(reqs ...driver.AcquireRequest) []driver.RenewRequest {
	var all []driver.RenewRequest
	for _, req := range reqs {
		all = append(all, driver.RenewRequest{Name: req.Name, Owner: req.Owner, TTL: req.TTL})
	}
	return all
}

// Eventually waits until done reports true.
func Eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(Bound)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("no %s after %v", what, Bound)
		}
		time.Sleep(time.Millisecond)
	}
}

// Signaled waits for a signal.
func Signaled(t *testing.T, signals <-chan struct{}) {
	t.Helper()
	select {
	case <-signals:
	case <-time.After(Bound):
		t.Fatal("no signal came")
	}
}

// EnableTLS has a server speak TLS, under a certificate that is signed by itself.
func EnableTLS(tb testing.TB, url string) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{"server.crt": {Type: "CERTIFICATE", Bytes: cert}, "server.key": {Type: "PRIVATE KEY", Bytes: private}} {
		// The server refuses a key that is not its user's.
		text := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(block))
		Execute(tb, url, fmt.Sprintf("COPY (SELECT '%s') TO PROGRAM 'umask 077; base64 -d >%s'", text, file))
	}
	Execute(tb, url, "ALTER SYSTEM SET ssl = on")
	Execute(tb, url, "SELECT pg_reload_conf()")
}

// A FarConn is a connection to a server that is on another host, as its addresses show it.
type FarConn struct{ net.Conn }

// LocalAddr returns 192.0.2.1.
func (FarConn) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 40000} }

// RemoteAddr returns 192.0.2.7.
func (FarConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 5432} }

// OpenFarPool is OpenPool for a server that seems to be on another host.
func OpenFarPool(tb testing.TB, url string) *pgxpool.Pool {
	tb.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		tb.Fatal(err)
	}
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return FarConn{conn}, err
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}
