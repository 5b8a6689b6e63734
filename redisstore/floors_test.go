//go:build unix

package redisstore

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// above takes a lock above a floor, and returns its token.
func above(t *testing.T, s *Store, name string, floor int64) (driver.Request, int64) {
	t.Helper()
	req := request(name, time.Minute)
	req.Floor = floor
	res, err := s.Acquire(t.Context(), req)
	if err != nil || !res.Granted {
		t.Fatalf("Acquire of %q above %d: %+v, %v", name, floor, res, err)
	}
	return req, res.Token
}

// pair is above, and lets go again.
func pair(t *testing.T, s *Store, name string, floor int64) int64 {
	t.Helper()
	req, token := above(t, s, name, floor)
	if !release(t, s, req) {
		t.Fatalf("the hold of %q is gone", name)
	}
	return token
}

const second = int64(time.Second / time.Microsecond)

// ahead counts the locks that a server remembers to be ahead of its counter.
func ahead(t *testing.T, server *servers.Redis, s *Store) int {
	t.Helper()
	n, err := strconv.Atoi(server.Do("ZCOUNT", (s.prefix + aheadSuffix), "(-inf", "+inf"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// What one lock is asked for changes nothing for others: many that are taken at
// once, each above a floor of its own, are granted exactly that. The servers of
// a quorum agree because of it.
func TestFloorsAreOfOneName(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	var group sync.WaitGroup
	for g := range 64 {
		group.Go(func() {
			for range 20 {
				floor := time.Now().UnixMicro() + 60*second + int64(g)
				req := request(fmt.Sprint(g), time.Minute)
				req.Floor = floor
				res, err := s.Acquire(t.Context(), req)
				if err != nil || res.Token != floor {
					t.Errorf("Acquire above %d: %+v, %v, want exactly the floor", floor, res, err)
					return
				}
				if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if token := pair(t, s, "another", 0); token > time.Now().UnixMicro() {
		t.Errorf("a lock without a floor is granted %d, above the floors of others", token)
	}
	if n := ahead(t, server, s); n != 64 {
		t.Errorf("%d locks are remembered, want 64", n)
	}
}

// A lock is forgotten when the counter has passed its token, and not by the
// clock, which may be set forward and back. (The counter is ahead of the clock
// here, so that the test does not depend on its own speed.)
func TestTokensAreForgottenWhenPassed(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	base := time.Now().UnixMicro() + 3600*second
	server.Do("SET", (s.prefix + counterSuffix), strconv.FormatInt(base, 10))
	for i := range int64(100) {
		pair(t, s, strconv.FormatInt(i, 10), base+102+i%2)
	}
	pair(t, s, "far", base+3600*second) // The counter is at base + 101.
	if n := ahead(t, server, s); n != 101 {
		t.Errorf("%d locks are remembered, want 101", n)
	}
	if got := server.Do("TTL", (s.prefix + aheadSuffix)); got != "-1" {
		t.Errorf("what is remembered expires in %s s", got)
	}
	pair(t, s, "another", 0)
	pair(t, s, "another", 0)
	if n := ahead(t, server, s); n != 51 {
		t.Errorf("%d locks are remembered, want those that had base + 103, and one more", n)
	}
	if token := pair(t, s, "1", 0); token != base+104 {
		t.Errorf("after %d the token is %d, want one more", base+103, token)
	}
	if n := ahead(t, server, s); n != 1 {
		t.Errorf("%d locks are remembered, want one", n)
	}
	server.Do("SET", (s.prefix + counterSuffix), strconv.FormatInt(base+7200*second, 10))
	for range 2 {
		pair(t, s, "1", 0)
	}
	if n := ahead(t, server, s); n != 0 {
		t.Errorf("%d locks are remembered when all is passed", n)
	}
	if token := pair(t, s, "1", base+9000*second); token != base+9000*second {
		t.Errorf("after all was passed a floor of %d is granted %d", base+9000*second, token)
	}
	if n := ahead(t, server, s); n != 1 {
		t.Errorf("then %d locks are remembered, want 1", n)
	}
	server.Do("ZADD", (s.prefix + aheadSuffix), "5", "passed")
	server.Do("SET", (s.prefix + counterSuffix), "1")
	pair(t, s, "1", base+9001*second)
	if n := ahead(t, server, s); n != 1 {
		t.Errorf("floors alone leave %d locks remembered, want 1", n)
	}
}

// The greatest token is granted, once, and none above it, whichever requests are sent together.
func TestLastToken(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	for together := 1; together <= 8; together++ {
		for _, left := range []int64{0, 1} {
			server.Do("SET", s.prefix+counterSuffix, strconv.FormatInt(driver.MaxToken-left, 10))
			var all []*call
			for i := range together {
				req := request(fmt.Sprint(together, left, i), time.Minute)
				all = append(all, s.acquireCall(&req))
			}
			sendTogether(s, all...)
			granted := int64(0)
			for i, c := range all {
				if reply, err := s.readReply(c); reply == int64(driver.MaxToken) {
					granted++
				} else if !errors.Is(err, driver.ErrInvalid) {
					t.Errorf("call %d of %d, for %d tokens: %v, %v, want an error", i, together, left, reply, err)
				}
			}
			if granted > left || together == 1 && granted < left {
				t.Errorf("the last token is granted %d times", granted)
			}
		}
	}
}

// No token is given twice where a block of them is above the counter.
func TestBlockAboveTheCounter(t *testing.T) {
	t.Parallel()
	s := open(t, servers.StartRedis(t).Addr, nil)
	last := int64(0)
	for i, tokens := range []int{1, 8, 8} {
		req := request("name", time.Minute)
		if req.Tokens = tokens; i == 0 {
			req.Floor = time.Now().Add(time.Hour).UnixMicro()
		}
		res, err := s.Acquire(t.Context(), req)
		if err != nil || !res.Granted || res.Token <= last {
			t.Fatalf("%+v, %v, want a token above %d", res, err, last)
		}
		last = res.Token + int64(tokens) - 1
		release(t, s, req)
	}
}
