package redisstore

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// An answer that does not fit the questions is an error for all of them, and so
// is none, which is told by the round trip alone.
func TestAnswersThatDoNotFit(t *testing.T) {
	t.Parallel()
	down := errors.New("the connection was refused")
	for _, reply := range []any{nil, "OK", []any{}, []any{int64(1)}, []any{int64(1), int64(1), int64(1)}} {
		r := &run{script: releaseScript, calls: []*call{{}, {}}, cmd: command{redis.NewCmd(t.Context())}}
		r.cmd.SetVal(reply)
		if reply == nil {
			r.err = down
		}
		r.deliver()
		for _, c := range r.calls {
			if c.err == nil || c.reply != nil {
				t.Errorf("%v for two releases: %v, %v, want an error", reply, c.reply, c.err)
			}
			if reply == nil != errors.Is(c.err, down) || reply != nil && !strings.Contains(c.err.Error(), "another number") {
				t.Errorf("%v for two releases: %v", reply, c.err)
			}
		}
	}
}
