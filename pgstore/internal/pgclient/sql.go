// Package pgclient has what the two stores in PostgreSQL share: connections, pools from URLs,
// errors and statements of the server.
package pgclient

import "strings"

// QuoteLiteral makes an SQL literal.
func QuoteLiteral(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
