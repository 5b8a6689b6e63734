//go:build unix

package redisstore

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// Entries are read back whatever characters the prefix of their keys has.
func TestPrefixWithSpaces(t *testing.T) {
	t.Parallel()
	s := open(t, servers.StartRedis(t).Addr, &Options{Prefix: "my locks:"})
	hold, place := grant(t, s, "a", time.Minute), request("a", time.Minute)
	place.Place = time.Minute
	if res, err := s.Acquire(t.Context(), place); err != nil || !res.Waiting {
		t.Fatal(res, err)
	}
	if state := renew(t, s, hold); state != driver.Held {
		t.Errorf("Renew of a hold: %v", state)
	}
	if state := renew(t, s, place); state != driver.Waiting {
		t.Errorf("Renew of a place: %v", state)
	}
}

// A place whose queue the server has evicted is lost, and does not wait for ever.
func TestEvictedQueue(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	hold, place := grant(t, s, "a", time.Minute), request("a", time.Minute)
	place.Place = time.Minute
	if res, err := s.Acquire(t.Context(), place); err != nil || !res.Waiting {
		t.Fatal(res, err)
	}
	server.Do("DEL", "lock:\x1fqueue\x1flock:a")
	release(t, s, hold)
	if state := renew(t, s, place); state == driver.Waiting {
		t.Error("a place that is in no queue, of a free name, waits")
	}
}

// The holders of a shared lock whose key the server has evicted are all lost, however many they
// are: one that comes later excludes others as ever.
func TestEvictedSharedLock(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	reader := func() driver.Request {
		req := request("a", time.Minute)
		req.Limit = driver.Shared
		if res, err := s.Acquire(t.Context(), req); err != nil || !res.Granted {
			t.Fatal(res, err)
		}
		return req
	}
	var lost driver.Request
	for range 1500 {
		lost = reader()
	}
	server.Do("DEL", "lock:a")
	live := reader()
	if release(t, s, lost) {
		t.Error("a Release of a lost hold reports true")
	}
	if res, err := s.Acquire(t.Context(), request("a", time.Minute)); err != nil || res.Granted {
		t.Errorf("an exclusive request beside a reader: %+v, %v", res, err)
	}
	if state := renew(t, s, live); state != driver.Held {
		t.Errorf("Renew of the reader: %v", state)
	}
}

// A store that has renewed a hold which another has made is told when it is broken, as after a
// ticket.
func TestBreakTellsTheAdopter(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	giver, taker := open(t, server.Addr, nil), open(t, server.Addr, nil)
	told := make(chan string, 10)
	taker.Notify(func(_, owner string, _ int64) { told <- owner })
	await := func(what, owner string) {
		for timeout := time.After(10 * time.Second); ; {
			select {
			case got := <-told:
				if got == owner {
					return
				}
			case <-timeout:
				t.Fatal("the adopter is not told of ", what)
			}
		}
	}
	for range 2 { // The second one waits.
		req := request("b", time.Minute)
		req.Place = time.Minute
		if _, err := taker.Acquire(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	await("the begin of its subscription", "")
	req := grant(t, giver, "a", time.Minute)
	if state := renew(t, taker, req); state != driver.Held {
		t.Fatal(state)
	}
	if _, err := giver.Break(t.Context(), "a", 0); err != nil {
		t.Fatal(err)
	}
	await("a Break", req.Owner)
}
