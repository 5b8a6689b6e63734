//go:build unix

package redisstore

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
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
		isStranger := func(verb string, rec driver.Record) {
			t.Helper()
			if rec.Name != "name" || rec.Holder != "" || rec.Token != 0 || rec.Kept || rec.Metadata != nil || rec.Remaining != 0 {
				t.Errorf("%s: %s says %+v", what, verb, rec)
			}
		}
		res, err := s.Acquire(t.Context(), request("name", time.Minute))
		if err != nil || res.Granted {
			t.Errorf("%s: Acquire: %+v, %v, want it refused", what, res, err)
		}
		isStranger("Acquire", res.Held)
		records, err := s.Lookup(t.Context(), "name")
		if err != nil || len(records) != 1 {
			t.Fatalf("%s: Lookup: %v, %v", what, records, err)
		}
		isStranger("Lookup", records[0])
		other := grant(t, s, "other", time.Minute)
		outcomes, err := s.Renew(t.Context(), []driver.RenewRequest{
			{Name: "name", Owner: "x", TTL: time.Minute}, {Name: "other", Owner: other.Owner, TTL: time.Minute},
		})
		if err != nil || outcomes[0].State != driver.Lost || outcomes[1].State != driver.Held {
			t.Errorf("%s: Renew of it and of a lock: %v, %v", what, outcomes, err)
		}
		for _, keep := range []time.Duration{0, time.Minute} {
			if ours, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: "x", Keep: keep}); err != nil || ours {
				t.Errorf("%s: Release: %v, %v", what, ours, err)
			}
		}
		if server.Do("EXISTS", "lock:name") != "1" {
			t.Errorf("%s: it is gone", what)
		}
		for _, token := range []int64{1, driver.MaxToken} {
			rec, err := s.Break(t.Context(), "name", token)
			if err != nil || len(rec) > 0 || server.Do("EXISTS", "lock:name") != "1" {
				t.Errorf("%s: Break with token %d: %+v, %v, want nothing broken", what, token, rec, err)
			}
		}
		rec, err := s.Break(t.Context(), "name", 0)
		if command[0] == "SET" {
			if err != nil || len(rec) != 1 || rec[0].Holder != "" {
				t.Errorf("%s: Break: %+v, %v", what, rec, err)
			}
		} else {
			kind := strings.TrimPrefix(server.Do("TYPE", "lock:name"), "+")
			if !errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrCorrupt) || kind == "none" || !strings.Contains(err.Error(), "is a "+kind) {
				t.Errorf("%s: Break: %+v, %v, want an error that names the type; it is %q", what, rec, err, kind)
			}
			server.Do("DEL", "lock:name")
		}
		grant(t, s, "name", time.Minute)
	}
}

// A listing goes on after a lock with a key of another type beside it, and the error names that
// key.
func TestListGoesOn(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	for _, name := range []string{"a", "b", "c"} {
		grant(t, s, name, time.Minute)
	}
	for _, key := range []string{queueInfix, entriesInfix} {
		server.Do("SET", "lock:"+key+"lock:b", "x")
		listed := map[string]bool{}
		for rec, err := range s.List(t.Context(), "") {
			if listed[rec.Name] = true; err != nil && (!errors.Is(err, driver.ErrCorrupt) || !strings.Contains(err.Error(), strconv.Quote("lock:"+key+"lock:b"))) {
				t.Error(err)
			}
		}
		if !listed["a"] || !listed["c"] {
			t.Errorf("listed beside a wrong %q: %v", key, listed)
		}
		server.Do("DEL", "lock:"+key+"lock:b")
	}
}
