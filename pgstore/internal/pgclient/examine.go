package pgclient

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/transport"
)

// oldestMajor is the oldest version of PostgreSQL that the stores are made for.
const oldestMajor = 13

// ExamineVersion checks that a server, by its setting server_version, is not older than what the
// stores are made for.
func ExamineVersion(check, version string) driver.Finding {
	f := driver.Finding{Check: check, Severity: driver.SeverityOK, Found: "PostgreSQL " + version}
	var major int
	if n, _ := fmt.Sscanf(version, "%d", &major); n < 1 {
		f.Severity, f.Found = driver.SeverityUnknown, fmt.Sprintf("cannot tell: server_version is %q", version)
		f.Want, f.Remedy = fmt.Sprintf("PostgreSQL %d or later", oldestMajor), "SHOW server_version"
	} else if major < oldestMajor {
		f.Severity, f.Found = driver.SeverityFailure, f.Found+" has not all that locks need"
		f.Want, f.Remedy = fmt.Sprintf("PostgreSQL %d or later", oldestMajor), "upgrade it"
	}
	return f
}

// ExamineTransport checks where a connection goes.
func ExamineTransport(check string, conn *pgconn.PgConn) driver.Finding {
	c := conn.Conn()
	return transport.Examine(check, c.LocalAddr(), c.RemoteAddr(), transport.IsEncrypted(c), "sslmode=verify-full in the URL")
}
