// Package pgclient has what the two stores in PostgreSQL share: connections, pools from URLs, errors
// and statements of the server.
package pgclient

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/retry"
)

// PingStatement is a ping that identifies the server process.
const PingStatement = "SELECT pg_catalog.pg_backend_pid()"

// Microseconds counts a time from 1970, or an interval.
func Microseconds(time string) string {
	return "(extract(epoch FROM " + time + ")::double precision * 1000000::double precision)::bigint"
}

// QuoteLiteral makes an SQL literal.
func QuoteLiteral(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// PauseBeforeRetry waits a moment, longer with every try. It returns false if the context has
// ended.
func PauseBeforeRetry(ctx context.Context, try int) bool {
	return retry.Sleep(ctx, rand.N(time.Millisecond<<min(try, 5))) == nil
}
