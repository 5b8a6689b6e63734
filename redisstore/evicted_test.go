//go:build unix

package redisstore

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

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
