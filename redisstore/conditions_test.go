//go:build unix

package redisstore

import (
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
			places := []driver.Request{wait(t, s, "name", time.Minute), wait(t, s, "name", time.Minute)}
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
