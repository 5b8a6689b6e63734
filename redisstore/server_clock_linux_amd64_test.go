package redisstore

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

func tryFor(t *testing.T, s *Store, owner string, ttl time.Duration) driver.Result {
	t.Helper()
	res, err := s.Acquire(t.Context(), driver.Request{Name: "name", Owner: owner, Holder: "host/1/x", TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// The server's clock is set forward by an hour: a lock runs out there at once.
// Its holder learns of it by its next renewal, and the token of the next holder
// is above its own.
func TestServerClockSetForward(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	lock, err := locksOf(t, s).Acquire(t.Context(), "name", &holdfast.Options{TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if res := tryFor(t, s, "another", time.Minute); res.Granted {
		t.Fatal("a lock that is held was granted")
	}
	servers.SetWallClock(t, server.PID(), time.Hour)
	res := tryFor(t, s, "another", time.Minute)
	if !res.Granted {
		t.Fatalf("an hour later, as the server counts, a lock of 2s is held: %+v", res)
	}
	if res.Token <= lock.Token() {
		t.Errorf("the token is %d, not above %d", res.Token, lock.Token())
	}
	select {
	case <-lock.Context().Done():
	case <-time.After(bound):
		t.Fatalf("the former holder believes in its lock %v later", bound)
	}
	if err := lock.Release(); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("the release of the former holder: %v, want ErrLost", err)
	}
	if recs, err := s.Lookup(t.Context(), "name"); err != nil || len(recs) != 1 || recs[0].Token != res.Token {
		t.Errorf("the former holder has disturbed the next: %+v, %v", recs, err)
	}
}

// The server's clock is set back by an hour: the locks that are held then run
// out an hour late, unless they are released or broken. The tokens go on rising.
func TestServerClockSetBack(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	first := tryFor(t, s, "one that crashes", 300*time.Millisecond)
	servers.SetWallClock(t, server.PID(), -time.Hour)
	res := tryFor(t, s, "another", time.Minute)
	if res.Granted || res.Held.Remaining < 50*time.Minute {
		t.Fatalf("the server's clock is an hour behind: %+v, want the lock held for about an hour", res)
	}
	if broken, err := s.Break(t.Context(), "name", 0); err != nil || len(broken) != 1 {
		t.Fatalf("Break: %v, %v", broken, err)
	}
	res = tryFor(t, s, "another", 300*time.Millisecond)
	if !res.Granted || res.Token <= first.Token {
		t.Errorf("after it was broken: %+v, want a token above %d", res, first.Token)
	}
	eventually(t, "end of a hold by the new time", func() bool { return tryFor(t, s, "a third", time.Minute).Granted })
}
