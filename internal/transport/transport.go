// Package transport has the check of the connection to a server that the examinations of several
// stores share.
package transport

import (
	"crypto/tls"
	"fmt"
	"net"

	"github.com/holdfast-go/holdfast/driver"
)

// Examine returns what is found of a connection. One that leaves this host and is not encrypted is
// a warning: it carries passwords, and the secrets of owners, which release their locks. The remedy
// is how the store is given TLS.
func Examine(check string, local, remote net.Addr, encrypted bool, remedy string) driver.Finding {
	f := driver.Finding{Check: check, Severity: driver.SeverityOK}
	switch stays, known := staysHere(local, remote); {
	case encrypted:
		f.Found = "the connection is encrypted (TLS)"
	case !known:
		f.Severity, f.Found, f.Want = driver.SeverityUnknown, "cannot tell: the program dials by itself, and its connections have no address", "TLS, if it leaves this host"
	case stays:
		f.Found = "the connection does not leave this host"
	default:
		f.Severity, f.Found = driver.SeverityWarning, fmt.Sprintf("the connection to %v is not encrypted: what is on the path reads passwords, and can release the locks of others", remote)
		f.Want, f.Remedy = "TLS", remedy
	}
	return f
}

// staysHere reports whether a connection is between two programs of this host: by a socket, by the
// loopback interface, or by another address of the host itself.
func staysHere(local, remote net.Addr) (stays, known bool) {
	switch remote := remote.(type) {
	case *net.UnixAddr:
		return true, true
	case *net.TCPAddr:
		own, ok := local.(*net.TCPAddr)
		return remote.IP.IsLoopback() || ok && own.IP.Equal(remote.IP), remote.IP != nil && !remote.IP.IsUnspecified()
	}
	return false, false
}

// IsEncrypted reports whether a connection is one of TLS.
func IsEncrypted(conn net.Conn) bool {
	_, encrypted := conn.(*tls.Conn)
	return encrypted
}
