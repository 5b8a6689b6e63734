//go:build unix

package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// sendTogether makes calls in one batch.
func sendTogether(s *Store, calls ...*call) {
	s.sendBatch(context.Background(), time.Now().Add(requestBound), calls)
}

func mustAcquireCall(t *testing.T, s *Store, req driver.AcquireRequest) *call {
	t.Helper()
	c, err := s.acquireCall(&req)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// In one batch each acquisition has its own answer, wherever it stands: those that
// are granted have tokens that rise by one and are those in their records.
func TestBatchOfAcquisitions(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	for _, order := range []string{"f", "ff", "h", "m", "w", "fhf", "hff", "ffh", "fmfwf", "mf", "wffhm", "hhmmww"} {
		server.Do("FLUSHALL")
		mine := grant(t, s, "mine", time.Second)
		first, _, _ := s.Lookup(t.Context(), "mine")
		theirs := grant(t, s, "theirs", time.Minute)
		server.Do("LPUSH", "lock:wrong", "x")
		var calls []*call
		for i, kind := range order {
			req := request(fmt.Sprint("free/", i), time.Minute)
			switch kind {
			case 'h':
				req.Name = theirs.Name
			case 'm':
				req, req.TTL = mine, 2*time.Minute
			case 'w':
				req.Name = "wrong"
			}
			calls = append(calls, mustAcquireCall(t, s, req))
		}
		sendTogether(s, calls...)
		var last int64
		for i, kind := range order {
			reply, err := s.readReply(calls[i])
			res, refusal := driver.AcquireResult{}, error(nil)
			if err == nil {
				res, refusal = granted("name", reply)
			}
			switch {
			case kind == 'w' && err == nil && refusal == nil && !res.Granted:
			case kind == 'h' && refusal == nil && !res.Granted && res.Held.Holder == "host/1/x" && res.Held.Remaining > 0:
			case kind == 'm' && res.Granted && res.Token == first.Token:
			case kind == 'f' && res.Granted && (last == 0 || res.Token == last+1):
				last = res.Token
				rec, _, err := s.Lookup(t.Context(), fmt.Sprint("free/", i))
				if err != nil || rec.Token != last || time.Until(rec.Until).Round(time.Minute) != time.Minute {
					t.Errorf("%s, %d: the record is %+v, %v, want token %d", order, i, rec, err, last)
				}
				if owner, _, _ := strings.Cut(server.Do("GET", calls[i].lock), "\n"); owner+"\n" != calls[i].owner {
					t.Errorf("%s, %d: the owner is %q, want %q", order, i, owner, calls[i].owner)
				}
			default:
				t.Errorf("%s, %d: %+v, %v, %v", order, i, res, err, refusal)
			}
		}
		if counter := server.Do("GET", s.counterKey("")); last != 0 && counter != strconv.FormatInt(last, 10) {
			t.Errorf("%s: the counter is %s after %d", order, counter, last)
		}
		if strings.Contains(order, "m") {
			if left, _ := strconv.Atoi(server.Do("PTTL", "lock:mine")); left < 100_000 {
				t.Errorf("%s: a repetition has left the lock %d ms", order, left)
			}
		}
	}
}

// at runs the acquire script when the server's clock says this, and its counter
// that, and returns its answers for so many locks, which are free before.
func at(t *testing.T, server *servers.Redis, s *Store, now, last int64, locks int) []any {
	t.Helper()
	server.Do("FLUSHALL")
	server.Do("SET", s.counterKey(""), strconv.FormatInt(last, 10))
	r := &scriptRun{script: acquireScript}
	for i := range locks {
		r.calls = append(r.calls, mustAcquireCall(t, s, request(strconv.Itoa(i), time.Minute)))
	}
	s.prepareCommand(r, true)
	clock := fmt.Sprintf("{'%d', '%d'}", now/second, now%second)
	text, _ := acquireScript.source()
	r.cmd.Args()[1] = strings.NewReplacer("redis.call('TIME')", clock, "call('TIME')", clock).Replace(text)
	if err := s.client.Process(t.Context(), r.cmd); err != nil {
		t.Fatal(err)
	}
	answers := make([]any, locks)
	for i := range answers {
		answers[i], _ = r.replyTo(i)
	}
	return answers
}

// The tokens of a batch may begin in one second and end in the next.
func TestTokensAcrossASecond(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	const size = 20
	for begin := 1234567890*second + second - size - 5; begin%second != 0; begin++ {
		for i, token := range at(t, server, s, begin, 5, size) {
			want := begin + int64(i)
			rec, _, err := s.Lookup(t.Context(), strconv.Itoa(i))
			if err != nil || token != want || rec.Token != want || rec.Since.UnixMicro() != begin {
				t.Fatalf("token %v, in the record %d, since %d, %v, want %d and %d", token, rec.Token, rec.Since.UnixMicro(), err, want, begin)
			}
		}
	}
}

// The greatest token is granted, and nothing above it, should a clock come so far.
func TestTokensAtTheEndOfTime(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	const left = 7
	for i, answer := range at(t, server, s, driver.MaxToken-left+1, 5, 2*left) {
		token, granted := answer.(int64)
		if want := driver.MaxToken - left + 1 + int64(i); granted != (i < left) || granted && token != want {
			t.Errorf("%d: %v, want %d or nothing above %d", i, answer, want, int64(driver.MaxToken))
		}
	}
}

// In one batch each release has its own answer, wherever it stands, and no more is
// ended than is to be.
func TestBatchOfReleases(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	for _, order := range []string{"m", "mm", "h", "g", "k", "w", "l", "mhm", "hmm", "mmh", "kmg", "lmlm", "wmk", "ghkwlm"} {
		server.Do("FLUSHALL")
		server.Do("LPUSH", "lock:wrong", "x")
		theirs := grant(t, s, "theirs", time.Minute)
		var calls []*call
		left := []string{s.counterKey(""), "lock:theirs", "lock:wrong"}
		for i, kind := range order {
			req := request(fmt.Sprint("mine/", i), time.Minute)
			rel := driver.ReleaseRequest{Name: req.Name, Owner: req.Owner}
			switch kind {
			case 'h':
				rel.Name = theirs.Name
			case 'w':
				rel.Name = "wrong"
			case 'l': // Owners may be of different lengths.
				req.Owner += "long"
				rel.Owner = req.Owner
			case 'k':
				rel.Keep = time.Minute
				left = append(left, "lock:"+rel.Name)
			}
			if strings.ContainsRune("mkl", kind) {
				if res, err := s.Acquire(t.Context(), req); err != nil || !res.Granted {
					t.Fatalf("%+v, %v", res, err)
				}
			}
			c, err := s.releaseCall(&rel)
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, c)
		}
		sendTogether(s, calls...)
		want := map[rune]any{'m': int64(1), 'l': int64(1), 'k': int64(1), 'h': int64(0), 'g': int64(0), 'w': int64(0)}
		for i, kind := range order {
			reply, err := s.readReply(calls[i])
			if err != nil || reply != want[kind] {
				t.Errorf("%s, %d: %v, %v, want %v", order, i, reply, err, want[kind])
			}
		}
		slices.Sort(left)
		if got := keys(server); !slices.Equal(got, left) {
			t.Errorf("%s: the keys %q are left, want %q", order, got, left)
		}
	}
}

// What the calls of a batch have in common is sent once; where they differ, each
// has its own.
func TestBatchesThatDiffer(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	for _, c := range []struct {
		ttls    [3]time.Duration
		holders [3]string
	}{
		{[3]time.Duration{time.Hour, time.Hour, time.Hour}, [3]string{"a", "a", "a"}},
		{[3]time.Duration{time.Hour, time.Hour, time.Minute}, [3]string{"a", "a", "a"}},
		{[3]time.Duration{time.Hour, time.Hour, time.Hour}, [3]string{"a", "a", "b"}},
		{[3]time.Duration{time.Minute, time.Hour, time.Minute}, [3]string{"a", "b", "c"}},
	} {
		server.Do("FLUSHALL")
		var takes, renewals []*call
		for i, ttl := range c.ttls {
			req := request(strconv.Itoa(i), ttl)
			req.Holder = c.holders[i]
			takes = append(takes, mustAcquireCall(t, s, req))
			renewals = append(renewals, s.newOwnerCall(renewScript, req.Name, req.Owner, ceilMillis(2*ttl)))
		}
		for n, batch := range [][]*call{takes, renewals} {
			sendTogether(s, batch...)
			for i, ttl := range c.ttls {
				rec, _, err := s.Lookup(t.Context(), strconv.Itoa(i))
				want := time.Duration(n+1) * ttl
				if err != nil || rec.Holder != c.holders[i] || rec.Remaining > want || rec.Remaining < want-10*time.Second {
					t.Errorf("%v, batch %d: lock %d is held by %s for %v, %v, want %s for %v",
						c, n, i, rec.Holder, rec.Remaining, err, c.holders[i], want)
				}
			}
		}
	}
}
