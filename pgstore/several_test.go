//go:build unix

package pgstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// A grant of several tokens has them for itself: the next grant is above all of them, whichever
// statement makes it.
func TestSeveralTokens(t *testing.T) {
	s := open(t)
	for what, next := range map[string]func(name string) int64{
		"the statement for a free name": func(name string) int64 { return pairOf(t, s, name) },
		"a batch": func(name string) int64 {
			pairOf(t, s, "other")
			changes := []*rowChange{acquisition(name, 0), acquisition("other", olddriver.MaxTokens)}
			if err := s.changeTogether(t.Context(), nil, changes); err != nil || !changes[0].applied || changes[0].tokens() != 1 {
				t.Fatalf("%+v, %v", changes[0], err)
			}
			return changes[0].token
		},
		"the function": func(name string) int64 {
			req := pgtest.Request(name, time.Minute)
			res, _, err := s.acquire(t.Context(), &req, 0, "{}")
			if err != nil || !res.Granted || res.Tokens > 1 {
				t.Fatalf("%+v, %v", res, err)
			}
			return res.Token
		},
		"another language": func(name string) (token int64) {
			query(t, s, "SELECT @acquire_lock_token@($1::text, 'me'::text)", []any{name}, &token)
			return token
		},
	} {
		t.Run(what, func(t *testing.T) {
			name := fmt.Sprint("name of ", what)
			pairOf(t, s, name) // The row is made.
			req := pgtest.Request(name, time.Minute)
			req.Tokens = olddriver.MaxTokens
			res, err := s.Acquire(t.Context(), req)
			if err != nil || !res.Granted || res.Tokens != olddriver.MaxTokens {
				t.Fatalf("%+v, %v, want %d tokens", res, err, olddriver.MaxTokens)
			}
			again, err := s.Acquire(t.Context(), req)
			if err != nil || again.Token != res.Token || again.Tokens > res.Tokens {
				t.Errorf("a repetition: %+v, %v after %+v", again, err, res)
			}
			// The clock is behind the tokens, as after a step back.
			change(t, s, "UPDATE @table@ SET token = token + 10000000, last_token = last_token + 10000000 WHERE lock_name = $1", name)
			last := res.Token + 10_000_000 + olddriver.MaxTokens - 1
			if ours, err := s.Release(t.Context(), olddriver.ReleaseRequest{Name: name, Owner: req.Owner}); err != nil || !ours {
				t.Fatal(ours, err)
			}
			if token := next(name); token <= last {
				t.Errorf("token %d after %d", token, last)
			}
		})
	}
}

func acquisition(name string, tokens int) *rowChange {
	req := pgtest.Request(name, time.Minute)
	req.Tokens = tokens
	return &rowChange{name: name, owner: req.Owner, acquire: &req, metadata: "{}"}
}

// pairOf takes a name and releases it.
func pairOf(t *testing.T, s *engine, name string) (token int64) {
	t.Helper()
	req, token := grantToken(t, s, name, time.Minute)
	if !release(t, s, req) {
		t.Fatalf("%q was not held", name)
	}
	return token
}
