//go:build unix

package redisstore

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// An answer that does not fit the questions is an error for all of them, and so
// is none, which is told by the round trip alone.
func TestAnswersThatDoNotFit(t *testing.T) {
	t.Parallel()
	down := errors.New("the connection was refused")
	for _, reply := range []any{nil, "OK", []any{}, []any{int64(1)}, []any{int64(1), int64(1), int64(1)}} {
		r := &scriptRun{script: releaseScript, calls: []*call{{}, {}}, cmd: redis.NewCmd(t.Context())}
		r.cmd.SetVal(reply)
		if reply == nil {
			r.err = down
		}
		r.distribute()
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

// A batch of calls that are alike is not much longer than their names and owners.
func TestAlikeIsSaidOnce(t *testing.T) {
	t.Parallel()
	s := New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), nil)
	defer s.client.Close()
	words := func(ttls ...time.Duration) int {
		r := &scriptRun{script: acquireScript}
		for i, ttl := range ttls {
			r.calls = append(r.calls, mustAcquireCall(t, s, request(strconv.Itoa(i), ttl)))
		}
		s.prepareCommand(r, false)
		return len(r.cmd.Args())
	}
	one := words(time.Minute)
	if n := words(time.Minute, time.Minute, time.Minute); n != one+6 {
		t.Errorf("three acquisitions that are alike take %d words, one takes %d, want 3 more for each", n, one)
	}
	if n := words(time.Minute, time.Hour, time.Minute); n != one+12 {
		t.Errorf("three that differ take %d words, one takes %d, want 6 more for each", n, one)
	}
}
