//go:build unix

package redisstore

import (
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// A queue goes on with RestartGuard and with MinReplicas: the next holds after a release and after
// a Break, and looks, since only its renewal shows whether replicas have it.
func TestQueueWithConditions(t *testing.T) {
	t.Parallel()
	for how, opts := range map[string]*Options{"guard": {RestartGuard: guard}, "replica": {MinReplicas: 1}} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			server, replica := servers.StartRedis(t, "--repl-diskless-sync-delay", "0"), servers.StartRedis(t)
			follow(t, replica, server)
			s := open(t, server.Addr, opts)
			if opts.RestartGuard > 0 {
				abstains(t, s, time.Now(), guard)
			}
			eventually(t, "confirmation by the replica", func() bool {
				req := request("name of its own", time.Minute)
				req.Name = req.Owner
				res, err := s.Acquire(t.Context(), req)
				return err == nil && res.Granted
			})
			told := make(chan string, 10)
			defer s.Notify(func(_, owner string, token int64) {
				if owner != "" && (token > 0) == (opts.MinReplicas == 0) {
					told <- owner
				}
			})()
			held := grant(t, s, "name", time.Minute)
			var places []driver.Request
			for range 2 {
				req := request("name", time.Minute)
				req.Place = time.Minute
				if res, err := s.Acquire(t.Context(), req); err != nil || !res.Waiting {
					t.Fatal(res, err)
				}
				places = append(places, req)
			}
			ends := []func(){
				func() { release(t, s, held) },
				func() {
					if _, err := s.Break(t.Context(), "name", 0); err != nil {
						t.Fatal(err)
					}
				},
			}
			for i, end := range ends {
				eventually(t, "connection for notices", func() bool { return server.Do("PUBSUB", "CHANNELS") != "" })
				if state := renew(t, s, places[i]); state != driver.Waiting {
					t.Errorf("before the end of the hold the next is %v", state)
				}
				end()
				for <-told != places[i].Owner { // The holder of what is broken looks, too.
				}
				if state := renew(t, s, places[i]); state != driver.Held {
					t.Errorf("after the end of the hold the next is %v", state)
				}
			}
		})
	}
}

// A full server prolongs a hold for the client that has adopted it, and ends it with its TTL.
func TestAdoptedOnAFullServer(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	held := grant(t, open(t, server.Addr, nil), "name", time.Minute)
	server.Do("CONFIG", "SET", "maxmemory", "1")
	if state := renew(t, open(t, server.Addr, nil), held); state != driver.Held {
		t.Errorf("the hold is %v", state)
	}
	if left, err := strconv.Atoi(server.Do("PTTL", "lock:name")); err != nil || left <= 0 || left > 60_000 {
		t.Errorf("it ends in %d ms, %v", left, err)
	}
}
