package redisstore

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/internal/storecheck"
)

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
	storecheck.Refuse(t, s, "name")
	servers.SetWallClock(t, server.PID(), time.Hour)
	_, token := storecheck.Grant(t, s, "name", time.Minute)
	if token <= lock.Token() {
		t.Errorf("the token is %d, not above %d", token, lock.Token())
	}
	select {
	case <-lock.Context().Done():
	case <-time.After(bound):
		t.Fatalf("the former holder believes in its lock %v later", bound)
	}
	if err := lock.Release(); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("the release of the former holder: %v, want ErrLost", err)
	}
	if recs, err := s.Lookup(t.Context(), "name"); err != nil || len(recs) != 1 || recs[0].Token != token {
		t.Errorf("the former holder has disturbed the next: %+v, %v", recs, err)
	}
}

// The server's clock is set back by an hour: the locks that are held then run
// out an hour late, unless they are released or broken. The tokens go on rising.
func TestServerClockSetBack(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	_, first := storecheck.Grant(t, s, "name", 300*time.Millisecond) // It crashes.
	servers.SetWallClock(t, server.PID(), -time.Hour)
	if held := storecheck.Refuse(t, s, "name"); held.Remaining < 50*time.Minute {
		t.Fatalf("the server's clock is an hour behind: %+v, want the lock held for about an hour", held)
	}
	if broken, err := s.Break(t.Context(), "name", 0); err != nil || len(broken) != 1 {
		t.Fatalf("Break: %v, %v", broken, err)
	}
	if _, token := storecheck.Grant(t, s, "name", 300*time.Millisecond); token <= first {
		t.Errorf("after it was broken the token is %d, want one above %d", token, first)
	}
	eventually(t, "end of a hold by the new time", func() bool {
		res, err := s.Acquire(t.Context(), request("name", time.Minute))
		return err == nil && res.Granted
	})
}
