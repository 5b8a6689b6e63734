// Package transport reads what the URLs of several stores have in common about connections.
package transport

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/holdfast-go/holdfast/driver"
)

// TLS reads the parameters cert_file, key_file, ca_file and server_name.
func TLS(query *driver.Query) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: query.String("server_name", "")}
	cert, key := query.String("cert_file", ""), query.String("key_file", "")
	if (cert == "") != (key == "") {
		return nil, fmt.Errorf("%w: cert_file and key_file belong together", driver.ErrInvalid)
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%w: cert_file and key_file: %w", driver.ErrInvalid, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if path := query.String("ca_file", ""); path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("%w: ca_file: %w", driver.ErrInvalid, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: ca_file has no certificate in PEM", driver.ErrInvalid)
		}
	}
	return config, nil
}
