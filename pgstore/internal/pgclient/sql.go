// Package pgclient has what the two stores in PostgreSQL share: connections, pools from URLs,
// errors and statements of the server.
package pgclient

import "strings"

// PingStatement is a ping that identifies the server process.
const PingStatement = "SELECT pg_catalog.pg_backend_pid()"

// Microseconds counts a time from 1970, or an interval.
func Microseconds(time string) string {
	return "(extract(epoch FROM " + time + ")::double precision * 1000000::double precision)::bigint"
}

// QuoteLiteral makes an SQL literal.
func QuoteLiteral(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
