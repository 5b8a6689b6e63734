//go:build unix

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// With too few replicas nothing is granted, so that a caller that waits does not make
// the lock look held to one that tries.
func TestNobodyHoldsWithoutReplicas(t *testing.T) {
	t.Parallel()
	for how, hang := range map[string]bool{"none is connected": false, "the only one hangs": true} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			master := servers.StartRedis(t, "--repl-diskless-sync-delay", "0")
			opts := &Options{MinReplicas: 1, ReplicaTimeout: 100 * time.Millisecond}
			if hang {
				replica := servers.StartRedis(t)
				follow(t, replica, master)
				replica.Pause()
				defer replica.Resume()
				eventually(t, "replica that is silent", func() bool {
					return strings.Contains(infoField(master, "slave0"), "lag=11")
				})
			}
			waits, tries := locksOf(t, open(t, master.Addr, opts)), locksOf(t, open(t, master.Addr, opts))
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			waited := make(chan error, 1)
			go func() {
				_, err := waits.Acquire(ctx, "name", nil)
				waited <- err
			}()
			for n := 0; ctx.Err() == nil; n++ {
				_, err := tries.TryAcquire(t.Context(), "name", nil)
				if errors.Is(err, holdfast.ErrHeld) || !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "0 replicas") {
					t.Fatalf("try %d: %v, want ErrUnavailable", n, err)
				}
			}
			if err := <-waited; err == nil {
				t.Error("the waiter has the lock")
			}
			if strings.Contains(master.Do("INFO", "commandstats"), "cmdstat_del:") {
				t.Error("something was granted and undone")
			}
		})
	}
}

// A name is kept once replicas have the keep, and until then ReleaseKeep is not confirmed; so is an
// acquisition.
func TestKeepWithoutReplicas(t *testing.T) {
	t.Parallel()
	master, replica := servers.StartRedis(t, "--repl-diskless-sync-delay", "0"), servers.StartRedis(t)
	follow(t, replica, master)
	c := holdfast.New(open(t, master.Addr, &Options{MinReplicas: 1, ReplicaTimeout: 100 * time.Millisecond}), &holdfast.Config{RequestTimeout: time.Second})
	defer c.Close()
	for _, connected := range []bool{true, false} {
		lock, err := c.Acquire(t.Context(), fmt.Sprint("connected ", connected), &holdfast.Options{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if !connected {
			replica.Pause()
			defer replica.Resume()
		}
		err = lock.ReleaseKeep(time.Hour)
		if connected && err != nil {
			t.Error(err)
		}
		if !connected && (!errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "0 replicas have confirmed")) {
			t.Errorf("ReleaseKeep without a replica: %v", err)
		}
	}
	_, err := c.TryAcquire(t.Context(), "another", nil)
	if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "0 replicas have confirmed") {
		t.Errorf("TryAcquire without a replica: %v", err)
	}
}

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
