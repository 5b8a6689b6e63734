//go:build unix

package redisstore

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// Requests for several tokens go into one batch with all others: each has what it requested, and the
// tokens of other locks do not depend on it.
func TestBatchWithSeveralTokens(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	for _, order := range []string{"s", "ss", "fs", "sf", "fsf", "hs", "sh", "ms", "sm", "Fs", "sF", "T", "TfT", "sFhTmfs"} {
		server.Do("FLUSHALL")
		mine := grant(t, s, "mine", time.Minute)
		theirs := grant(t, s, "theirs", time.Minute)
		var calls []*call
		var reqs []driver.AcquireRequest
		for i, kind := range order {
			req := request(fmt.Sprint("free/", i), time.Minute)
			switch kind {
			case 'h':
				req.Name = theirs.Name
			case 'm': // a repetition
				req, req.TTL = mine, 2*time.Minute
			case 'F':
				req.Floor = time.Now().Add(time.Hour).UnixMicro()
			case 'T':
				req.Floor = time.Now().Add(time.Hour).UnixMicro()
			}
			if kind != 'f' && kind != 'F' {
				req.Tokens = driver.MaxTokens
			}
			reqs, calls = append(reqs, req), append(calls, mustAcquireCall(t, s, req))
		}
		sendTogether(s, calls...)
		for i, kind := range order {
			var res driver.AcquireResult
			reply, err := s.readReply(calls[i])
			if err == nil {
				res, err = granted(reqs[i].Name, reply)
			}
			want := 1
			if kind == 's' || kind == 'T' {
				want = driver.MaxTokens
			}
			if err != nil || res.Granted != (kind != 'h') || res.Granted && max(res.Tokens, 1) != want || res.Token < reqs[i].Floor {
				t.Errorf("%s, %d: %+v, %v, want %d tokens", order, i, res, err, want)
			}
			if !res.Granted || kind == 'm' {
				continue
			}
			rec, _, err := s.Lookup(t.Context(), reqs[i].Name)
			if err != nil || rec.Token != res.Token {
				t.Errorf("%s, %d: the record has token %d, %v, want %d", order, i, rec.Token, err, res.Token)
			}
			if !release(t, s, reqs[i]) {
				t.Errorf("%s, %d: not held", order, i)
			}
			if next := pair(t, s, reqs[i].Name, 0); next < res.Token+int64(want) {
				t.Errorf("%s, %d: token %d after %d tokens from %d", order, i, next, want, res.Token)
			}
		}
		if other, clock := pair(t, s, "other", 0), time.Now().UnixMicro(); other > clock+second/2 {
			t.Errorf("%s: another lock has a token %d us ahead of the clock", order, other-clock)
		}
	}
}

// A lock that is granted several tokens again and again has at most half a second of them ahead of
// the clock, and is forgotten when the counter has passed them.
func TestSeveralTokensAgainAndAgain(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	last, single := int64(0), 0
	for range 2000 {
		req := request("name", time.Minute)
		req.Tokens = driver.MaxTokens
		before := time.Now().UnixMicro()
		res, err := s.Acquire(t.Context(), req)
		if err != nil || !res.Granted || res.Token <= last || !release(t, s, req) {
			t.Fatalf("%+v, %v after token %d", res, err, last)
		}
		last = res.Token + int64(max(res.Tokens, 1)) - 1
		if res.Tokens > 1 && last > time.Now().UnixMicro()+second/2 {
			t.Fatalf("token %d is more than half a second above the clock, %d", last, before)
		}
		if res.Tokens <= 1 {
			single++
		}
	}
	if n := ahead(t, server, s); n > 1 {
		t.Errorf("%d locks are remembered, want one at most", n)
	}
	server.Do("SET", s.counterKey(""), strconv.FormatInt(last, 10)) // as if the clock had passed it
	if pair(t, s, "other", 0); ahead(t, server, s) != 0 {
		t.Errorf("the lock is remembered although the counter has passed its tokens")
	}
	t.Logf("%d of 2000 grants had one token", single)
}

// With MinReplicas a grant of several tokens counts when a replica has confirmed it, and is undone
// otherwise.
func TestSeveralTokensAreConfirmed(t *testing.T) {
	t.Parallel()
	master := servers.StartRedis(t, "--repl-diskless-sync-delay", "0")
	replica := servers.StartRedis(t)
	s := open(t, master.Addr, &Options{MinReplicas: 1, ReplicaTimeout: 500 * time.Millisecond})
	follow(t, replica, master)
	master.Do("SET", "follows", "1")
	eventually(t, "what the master writes", func() bool { return replica.Do("EXISTS", "follows") == "1" })
	req := request("name", time.Minute)
	req.Tokens = driver.MaxTokens
	res, err := s.Acquire(t.Context(), req)
	if err != nil || res.Tokens != driver.MaxTokens || replica.Do("EXISTS", "lock:name") != "1" {
		t.Fatalf("%+v, %v; the replica has it: %s", res, err, replica.Do("EXISTS", "lock:name"))
	}
	replica.Pause()
	defer replica.Resume()
	req.Name = "other"
	res, err = s.Acquire(t.Context(), req)
	if err == nil || res.Granted || master.Do("EXISTS", "lock:other") != "0" {
		t.Errorf("unconfirmed: %+v, %v; the master has it: %s", res, err, master.Do("EXISTS", "lock:other"))
	}
}
