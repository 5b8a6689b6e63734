//go:build unix

package redisstore

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/internal/storecheck"
)

// startTLS starts a server that also speaks TLS, under a certificate for the name "redis.test" that
// is signed by itself, and that wants a certificate of its clients. Its own will do. It returns its
// address, and the files of the certificate and of its key.
func startTLS(t *testing.T) (addr, ca, private string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "redis.test"},
		DNSNames:     []string{"redis.test"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		IsCA:         true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	ca, private = writePEM(t, "CERTIFICATE", cert), writePEM(t, "PRIVATE KEY", der)
	server := servers.StartRedis(t, "--tls-cert-file", ca, "--tls-key-file", private, "--tls-ca-cert-file", ca)
	port := freePort(t)
	server.Do("CONFIG", "SET", "tls-port", port)
	return net.JoinHostPort("127.0.0.1", port), ca, private
}

func writePEM(t *testing.T, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// freePort returns a port on which nobody listens.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port
}

func TestTLS(t *testing.T) {
	t.Parallel()
	addr, ca, key := startTLS(t)
	right := "rediss://" + addr + "?" + url.Values{"server_name": {"redis.test"}, "ca_file": {ca}, "cert_file": {ca}, "key_file": {key}}.Encode()
	s := openFromURL(t, right)
	release(t, s, grant(t, s, "name", time.Minute))

	plain := servers.StartRedis(t).Addr
	for text, says := range map[string]string{
		"rediss://:SecretWord@" + addr + "?server_name=redis.test":         "unknown authority",
		"rediss://:SecretWord@" + addr + "?ca_file=" + url.QueryEscape(ca): "cannot validate certificate",
		strings.Replace(right, "redis.test", "other.test", 1):              "certificate is valid for redis.test",
		strings.Replace(right, "//", "//user:SecretWord@", 1):              "wants another user or password",
		"rediss://:SecretWord@" + plain:                                    "over TLS",
		"redis+cluster://:SecretWord@" + plain + "?tls=true":               "over TLS",
		"redis://:SecretWord@" + addr:                                      "one does that wants TLS",
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			verbs := allVerbs
			if strings.Contains(text, plain) {
				verbs = verbs[:1] // Each takes as long as it may.
			}
			s := openFromURL(t, text)
			if !strings.HasPrefix(text, "redis://") {
				fails(t, s, driver.ErrNotApplied, says, verbs...)
				return
			}
			for verb, call := range storecheck.Calls(s, request("name", time.Minute)) { // The server may have read the request, as far as is known.
				if err := call(t.Context()); err == nil || driver.IsNotApplied(err) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "Secret") {
					t.Errorf("%s: %v, want an error that says %q", verb, err, says)
				}
			}
		})
	}
}
