//go:build unix

package etcdstore

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// makeCertificate makes a certificate for this host, of a server and of a client, that signs
// itself. It returns the files of it and of its key, too.
func makeCertificate(t *testing.T) (pair tls.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: t.Name()},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	certPEM, keyPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	certFile, keyFile = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	must(t, os.WriteFile(certFile, certPEM, 0o600))
	must(t, os.WriteFile(keyFile, keyPEM, 0o600))
	pair, err = tls.X509KeyPair(certPEM, keyPEM)
	must(t, err)
	return pair, certFile, keyFile
}

// A server that requires certificates serves a client that has one and the CA of the server. Others
// get an error that shows why.
func TestTLS(t *testing.T) {
	t.Parallel()
	pair, cert, key := makeCertificate(t)
	_, foreignCert, foreignKey := makeCertificate(t)
	roots := x509.NewCertPool()
	roots.AddCert(pair.Leaf)
	member := servers.StartEtcdTLS(t, &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}},
		"--cert-file", cert, "--key-file", key, "--trusted-ca-file", cert, "--client-cert-auth")
	text := func(query ...string) string {
		values := url.Values{}
		for i := 0; i < len(query); i += 2 {
			values.Set(query[i], query[i+1])
		}
		return "etcds://" + member.Addr + "/secret-prefix?" + values.Encode()
	}
	c, err := holdfast.Open(t.Context(), text("ca_file", cert, "cert_file", cert, "key_file", key), nil)
	must(t, err)
	lock, err := c.Acquire(t.Context(), "name", nil)
	must(t, err)
	must(t, lock.Release())
	must(t, c.Close())
	// The server closes the connection, which the client may notice before it has read why.
	const refused = "tls: |broken pipe|reset"
	for text, want := range map[string]string{
		text("ca_file", foreignCert, "cert_file", cert, "key_file", key):                  "certificate signed by unknown authority",
		text("ca_file", cert, "cert_file", cert, "key_file", key, "server_name", "other"): "certificate is not valid",
		text("ca_file", cert): refused,
		text("ca_file", cert, "cert_file", foreignCert, "key_file", foreignKey): refused,
	} {
		s, err := openText(t, text)
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		_, err = s.Acquire(ctx, request("owner", time.Minute))
		cancel()
		if err == nil || !regexp.MustCompile(want).MatchString(err.Error()) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
		must(t, s.Close())
	}
}

// enableAuth enables the users of a cluster. Each has a role of its own, with a right to keys with
// a prefix, and the password "secret". It returns a client of the user root.
func enableAuth(t *testing.T, member *servers.Etcd, rights map[string]right) *clientv3.Client {
	t.Helper()
	c, ctx := directClient(t, member), t.Context()
	for user, right := range rights {
		_, err := c.RoleAdd(ctx, user)
		must(t, err)
		_, err = c.RoleGrantPermission(ctx, user, right.prefix, clientv3.GetPrefixRangeEnd(right.prefix), right.kind)
		must(t, err)
		_, err = c.UserAdd(ctx, user, "secret")
		must(t, err)
		_, err = c.UserGrantRole(ctx, user, user)
		must(t, err)
	}
	_, err := c.UserAdd(ctx, "root", "secret")
	must(t, err)
	_, err = c.UserGrantRole(ctx, "root", "root")
	must(t, err)
	_, err = c.AuthEnable(ctx)
	must(t, err)
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{member.Addr}, Username: "root", Password: "secret"})
	must(t, err)
	t.Cleanup(func() { _ = root.Close() })
	return root
}

type right struct {
	kind   clientv3.PermissionType
	prefix string
}

var (
	mayRead = clientv3.PermissionType(clientv3.PermRead)
	mayDoIt = clientv3.PermissionType(clientv3.PermReadWrite)
)

// TestUsers has what one server with users suffices for.
func TestUsers(t *testing.T) {
	t.Parallel()
	member := servers.StartEtcd(t, "--bcrypt-cost", "4")
	root := enableAuth(t, member, map[string]right{
		"writer": {mayDoIt, DefaultPrefix}, "neighbor": {mayDoIt, "other/"}, "dashboard": {mayRead, DefaultPrefix + "lock/"},
		"team": {mayDoIt, DefaultPrefix + "lock/team/"},
	})
	for _, right := range []right{{mayDoIt, DefaultPrefix + "token/team/"}, {mayDoIt, DefaultPrefix + "base"}} {
		_, err := root.RoleGrantPermission(t.Context(), "team", right.prefix, clientv3.GetPrefixRangeEnd(right.prefix), right.kind)
		must(t, err)
	}
	as := func(t *testing.T, user string) *Store {
		t.Helper()
		s, err := openText(t, "etcd://"+user+":secret@"+member.Addr)
		must(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}

	// A password that is wrong is not shown.
	for _, text := range []string{"etcd://writer:secret-wrong@" + member.Addr, "etcd://nobody:secret@" + member.Addr} {
		if _, err := openText(t, text); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want an error", err)
		}
	}
	anonymous, err := openText(t, "etcd://"+member.Addr)
	must(t, err)
	defer anonymous.Close()
	if res, err := anonymous.Acquire(t.Context(), request("other", time.Hour)); err == nil || !driver.IsNotApplied(err) {
		t.Errorf("Acquire without a user: %+v, %v, want an error", res, err)
	}

	// A user that may read the entries alone lists and looks up locks, and changes nothing. No
	// owner is in etcd, without which nobody renews or releases a lock.
	writer, reader := as(t, "writer"), as(t, "dashboard")
	const owner = "owner-secret"
	held := grant(t, writer, request(owner, time.Hour))
	waitFor(t, writer, "name", owner+"-2")
	recs, err := reader.Lookup(t.Context(), "name")
	if err != nil || len(recs) != 1 || recs[0].Token != held.Token || recs[0].Waiting != 1 || recs[0].Remaining <= 0 {
		t.Errorf("Lookup: %+v, %v", recs, err)
	}
	for rec, err := range reader.List(t.Context(), "") {
		if err != nil || rec.Name != "name" || rec.Holder != "holder" {
			t.Errorf("List: %+v, %v", rec, err)
		}
	}
	all, err := root.Get(t.Context(), "", clientv3.WithPrefix())
	must(t, err)
	for _, kv := range all.Kvs {
		if text := kv.String(); strings.Contains(text, owner) {
			t.Errorf("etcd has an owner: %s", text)
		}
	}
	if _, err := reader.Break(t.Context(), "name", 0); !driver.IsNotApplied(err) {
		t.Errorf("Break: %v, want it refused", err)
	}

	// A team with rights to names of its own uses them, and no other.
	team := as(t, "team")
	if res, err := team.Acquire(t.Context(), request("team", time.Hour)); !driver.IsNotApplied(err) {
		t.Errorf("a team acquires the name of another: %+v, %v", res, err)
	}
	own := request("team", time.Hour)
	own.Name = "team/name"
	grant(t, team, own)

	// A user with rights elsewhere, and a key on the leases of others, stops no lock: from release
	// 3.5 on, a server refuses a lease to a user without the right to write all of its keys.
	neighbor, other := as(t, "neighbor"), as(t, "writer")
	meddle := func() {
		leases, err := root.Leases(t.Context())
		must(t, err)
		for i, l := range leases.Leases {
			_, _ = neighbor.client.Put(t.Context(), fmt.Sprint("other/", i), "", clientv3.WithLease(l.ID)) // A server may refuse it.
		}
		other.mu.Lock()
		defer other.mu.Unlock()
		for _, l := range other.leases {
			l.certain = time.Now().Add(time.Second) // so that it is kept alive
		}
	}
	for n := range 3 {
		req := request("owner", time.Minute) // on a lease without keys
		req.Name = fmt.Sprint("beside a neighbor ", n)
		grant(t, other, req)
		_, err := other.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
		must(t, err)
		meddle()
		grant(t, other, req)
		for _, ttl := range []time.Duration{req.TTL, 2 * req.TTL} { // on a lease with its entry, and on another one
			meddle()
			renew := []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: ttl}}
			entries, err := other.Renew(t.Context(), renew)
			if errors.Is(err, rpctypes.ErrPermissionDenied) {
				entries, err = other.Renew(t.Context(), renew)
			}
			if err != nil || entries[0].State != driver.Held {
				t.Errorf("Renew for %v: %v, %v, want Held", ttl, entries, err)
			}
		}
		_, err = other.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
		must(t, err)
	}
}

// The user and the password of the environment are those of a URL without any.
func TestUserOfEnvironment(t *testing.T) {
	t.Setenv("HOLDFAST_ETCD_USER", "writer")
	text := "etcd://127.0.0.1:1"
	t.Setenv("HOLDFAST_ETCD_PASSWORD", "")
	if _, err := openText(t, text); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a user without a password: %v", err)
	}
	member := servers.StartEtcd(t, "--bcrypt-cost", "4")
	enableAuth(t, member, map[string]right{"writer": {mayDoIt, DefaultPrefix}})
	t.Setenv("HOLDFAST_ETCD_PASSWORD", "secret")
	s, err := openText(t, "etcd://"+member.Addr)
	must(t, err)
	grant(t, s, request("owner", time.Hour))
	must(t, s.Close())
}

// A client whose token has expired while it was idle is authenticated again. It renews, releases
// and acquires, and its waiters are notified, beside a watch that began with the old token.
func TestTokenThatExpires(t *testing.T) {
	t.Parallel()
	member := servers.StartEtcd(t, "--auth-token-ttl", "1", "--bcrypt-cost", "4")
	enableAuth(t, member, map[string]right{"writer": {mayDoIt, DefaultPrefix}})
	text := "etcd://writer:secret@" + member.Addr
	s, err := openText(t, text)
	must(t, err)
	defer s.Close()
	other, err := openText(t, text)
	must(t, err)
	defer other.Close()
	notices := noticesOf(s)
	expire := func() { time.Sleep(2500 * time.Millisecond) } // Any use of a token prolongs it, so it cannot be tried.
	hold := func(s *Store, name, owner string, queue time.Duration) driver.Result {
		t.Helper()
		req := request(owner, time.Hour)
		req.Name, req.Place = name, queue
		res, err := s.Acquire(t.Context(), req)
		if err != nil || res.Granted == (queue > 0) {
			t.Fatalf("Acquire of %q: %+v, %v", name, res, err)
		}
		return res
	}
	mine := hold(s, "mine", "owner", 0)
	hold(other, "first", "other", 0)
	hold(other, "second", "other", 0)
	hold(s, "first", "waiter", time.Hour) // Its watch stays open.
	expire()
	entries, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: "mine", Owner: "owner", TTL: 2 * time.Hour, Token: mine.Token}})
	if err != nil || entries[0].State != driver.Held {
		t.Errorf("Renew: %v, %v", entries, err)
	}
	expire()
	hold(s, "new", "owner", 0)
	expire()
	hold(s, "second", "waiter", time.Hour)
	expire()
	for _, name := range []string{"second", "first"} {
		if _, err := other.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: "other"}); err != nil {
			t.Error(err)
		}
		for isHeld := false; !isHeld; { // A watch on the old stream fails, and its owner is to look.
			n := receive(t, notices)
			isHeld = renewedAs(t, s, n.name, n.owner, time.Hour, 0) == driver.Held && n.name == name
		}
	}
	expire()
	if released, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "mine", Owner: "owner"}); !released || err != nil {
		t.Errorf("Release: %v, %v", released, err)
	}
}
