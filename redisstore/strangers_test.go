//go:build unix

package redisstore

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/internal/storecheck"
)

// strangers are the ways in which other kinds of clients keep a lock under a name of
// ours, and values that are made to be mistaken for ours. Each leaves the key KEY,
// which has no expiry.
var strangers = map[string][]string{
	"a sorted set":                   {"ZADD", "KEY", "1", "x"}, // Symfony, the Semaphore of redis-semaphore
	"a hash":                         {"HSET", "KEY", "x", "1"}, // Redisson
	"a set":                          {"SADD", "KEY", "x"},
	"a list":                         {"LPUSH", "KEY", "x"},
	"a stream":                       {"XADD", "KEY", "*", "x", "1"},
	"an empty text":                  {"SET", "KEY", ""},
	"bytes that are no text":         {"SET", "KEY", "\xff\x00\xfe"},
	"a shared lock of a secret":      {"SET", "KEY", "shared:secret"},
	"a shared lock without holds":    {"SET", "KEY", "shared:\n5 0"},
	"a token of none":                {"SET", "KEY", "owner\n0 1 c\n1\n1\nholder"},
	"a token too large":              {"SET", "KEY", "owner\n9007199254740992 1 c\n1\n1\nholder"},
	"a token beyond all bounds":      {"SET", "KEY", "owner\n99999999999999999999 1 c\n1\n1\nholder"},
	"a block beyond all bounds":      {"SET", "KEY", "owner\n1 99999999999999999999 c\n1\n1\nholder"},
	"a begin in the year 300000":     {"SET", "KEY", "owner\n5 1 c\n9460730000000\n1\nholder"},
	"a begin beyond all bounds":      {"SET", "KEY", "owner\n5 1 c\n99999999999999999999\n1\nholder"},
	"a holder that commands screens": {"SET", "KEY", "owner\n5 1 c\n1\n1\n\x1b[2Jholder"},
	"a holder of two lines":          {"SET", "KEY", "owner\n5 1 c\n1\n1\nholder\nline"},
	"a long holder":                  {"SET", "KEY", "owner\n5 1 c\n1\n1\n" + strings.Repeat("h", 300)},
	"metadata that are no texts":     {"SET", "KEY", "owner\n5 1 c\n1\n1\nholder\n{\"a\":1}"},
	"metadata that are large":        {"SET", "KEY", "owner\n5 1 c\n1\n1\nholder\n{\"a\":\"" + strings.Repeat("x", 9000) + "\"}"},
}

// Another kind of client holds what it has left under a name, whatever it looks like:
// it is waited for, and never taken for something broken.
func TestStrangers(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	for what, command := range strangers {
		server.Do("FLUSHALL")
		words := slices.Clone(command)
		words[1] = "lock:name"
		server.Do(words...)
		held := storecheck.Refuse(t, s, "name")
		records, err := s.Lookup(t.Context(), "name")
		if err != nil || len(records) != 1 {
			t.Fatalf("%s: Lookup: %v, %v", what, records, err)
		}
		for _, rec := range append(records, held) {
			if rec.Name != "name" || rec.Holder != "" || rec.Token != 0 || rec.Kept || rec.Metadata != nil || rec.Remaining != 0 {
				t.Errorf("%s is shown as %+v", what, rec)
			}
		}
		other := request("name", time.Minute)
		if state := renew(t, s, other); state != driver.Lost || release(t, s, other) {
			t.Errorf("%s: another owner has %v, and releases it", what, state)
		}
		if kept, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: other.Owner, Keep: time.Minute}); err != nil || kept {
			t.Errorf("%s: Release with Keep: %v, %v", what, kept, err)
		}
		for _, token := range []int64{1, driver.MaxToken} {
			if rec, err := s.Break(t.Context(), "name", token); err != nil || len(rec) > 0 {
				t.Errorf("%s: Break with token %d: %+v, %v, want nothing broken", what, token, rec, err)
			}
		}
		kind := strings.TrimPrefix(server.Do("TYPE", "lock:name"), "+")
		rec, err := s.Break(t.Context(), "name", 0)
		if command[0] == "SET" {
			if kind != "string" || err != nil || len(rec) != 1 || rec[0].Holder != "" {
				t.Errorf("%s, a %s: Break: %+v, %v", what, kind, rec, err)
			}
		} else {
			if !errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrCorrupt) || kind == "none" || !strings.Contains(err.Error(), "is a "+kind) {
				t.Errorf("%s: Break: %+v, %v, want an error that names the type; it is %q", what, rec, err, kind)
			}
			server.Do("DEL", "lock:name")
		}
		grant(t, s, "name", time.Minute)
	}
}
