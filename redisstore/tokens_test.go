//go:build unix

package redisstore

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

func TestGreatestToken(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	for _, floor := range []int64{driver.MaxToken/2 + 1, driver.MaxToken - 1, driver.MaxToken} { // 2^52 and above
		server.Do("SET", s.counterKey(""), strconv.FormatInt(floor-second, 10)) // near enough for the floor
		if token := pair(t, s, "name", floor); token != floor {
			t.Errorf("above a floor of %d the token is %d", floor, token)
		}
		if got := server.Do("ZSCORE", s.aheadKey(""), "lock:name"); got != strconv.FormatInt(floor, 10) {
			t.Errorf("the token %d is remembered as %s", floor, got)
		}
	}
	fails(t, s, driver.ErrInvalid, "no token as great", "Acquire")
	held, _ := above(t, s, "held", driver.MaxToken)
	if res, err := s.Acquire(t.Context(), held); err != nil || res.Token != driver.MaxToken {
		t.Errorf("a repetition at the greatest token: %+v, %v", res, err)
	}
	if res, err := s.Acquire(t.Context(), request("held", time.Minute)); err != nil || res.Granted {
		t.Errorf("Acquire of a lock that is held at the greatest token: %+v, %v", res, err)
	}
	far := request("free", time.Minute)
	far.Floor = driver.MaxToken
	server.Do("SET", s.counterKey(""), "0")
	if _, err := s.Acquire(t.Context(), far); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "24h0m0s above the server's clock") {
		t.Errorf("a floor that is too far above the clock: %v", err)
	}
	pair(t, s, "another", 0)
	server.Do("DEL", s.aheadKey(""))
	server.Do("LPUSH", s.aheadKey(""), "x")
	fails(t, s, driver.ErrCorrupt, "sorted set", "Acquire")
	if got := server.Do("EXISTS", "lock:name"); got != "0" {
		t.Error("an Acquire that failed has taken the lock")
	}
}

func TestCorruptCounter(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	server.Do("SET", s.counterKey(""), "many")
	fails(t, s, driver.ErrCorrupt, "counter", "Acquire")
	server.Do("DEL", s.counterKey(""))
	server.Do("LPUSH", s.counterKey(""), "x")
	fails(t, s, driver.ErrCorrupt, "counter", "Acquire")
	if got := server.Do("EXISTS", "lock:name"); got != "0" {
		t.Error("an Acquire that failed has taken the lock")
	}
	server.Do("DEL", s.counterKey(""))
	server.Do("SET", s.counterKey(""), strconv.FormatInt(driver.MaxToken, 10))
	fails(t, s, driver.ErrInvalid, "counter", "Acquire")
}

// The server's clock is set back by years, as it seems from the last token; and
// then the counter is lost.
func TestTokensAndTheClock(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	token := func() int64 {
		res, err := s.Acquire(t.Context(), request(strconv.FormatInt(owners.Add(1), 10), time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		return res.Token
	}
	now := time.Now().UnixMicro()
	first := token()
	if off := first - now; off < -int64(time.Minute/time.Microsecond) || off > int64(time.Minute/time.Microsecond) {
		t.Errorf("the first token is %d, want the server's clock, about %d", first, now)
	}
	ahead := first + 1e15
	server.Do("SET", s.counterKey(""), strconv.FormatInt(ahead, 10))
	if got := token(); got != ahead+1 {
		t.Errorf("with a counter ahead of the clock the token is %d, want %d", got, ahead+1)
	}
	server.Do("SET", s.counterKey(""), strconv.FormatInt(first, 10))
	server.Do("DEL", s.counterKey(""))
	if got := token(); got <= first {
		t.Errorf("when the counter was lost the token is %d, not above %d", got, first)
	}
}
