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
			waits, tries := holdfast.New(open(t, master.Addr, opts), nil), holdfast.New(open(t, master.Addr, opts), nil)
			defer waits.Close()
			defer tries.Close()
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
			if numberOf(t, master, "del") > 0 {
				t.Error("something was granted and undone")
			}
		})
	}
}

// What is held is said to be held, also with too few replicas, and a repetition of the
// acquisition that holds it is not taken for a new one.
func TestHeldWithoutReplicas(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	req := grant(t, open(t, server.Addr, nil), "name", time.Minute)
	s := open(t, server.Addr, &Options{MinReplicas: 1, ReplicaTimeout: time.Millisecond})
	res, err := s.Acquire(t.Context(), request("name", time.Minute))
	if err != nil || res.Granted || res.Held.Holder != req.Holder {
		t.Errorf("Acquire: %+v, %v, want it held", res, err)
	}
	if _, err := s.Acquire(t.Context(), req); err == nil || !strings.Contains(err.Error(), "0 replicas have confirmed") {
		t.Errorf("Acquire of the holder: %v, want it unconfirmed", err)
	}
}

// A user that may not use WAIT gets an error at once, whether it waits or not.
func TestMissingRightToWait(t *testing.T) {
	t.Parallel()
	master, replica := servers.StartRedis(t, "--repl-diskless-sync-delay", "0"), servers.StartRedis(t)
	follow(t, replica, master)
	master.Do("ACL", "SETUSER", "limited", "on", ">SecretWord", "~lock:*", "&*", "+@all", "-wait")
	s := openFromURL(t, "redis://limited:SecretWord@"+master.Addr+"?min_replicas=1")
	_, err := s.Acquire(t.Context(), request("name", time.Minute))
	var later *driver.RetryError
	if errors.As(err, &later) || !driver.IsNotApplied(err) || !strings.Contains(err.Error(), "must be allowed") || strings.Contains(err.Error(), "Secret") {
		t.Errorf("Acquire: %v, want a permanent error that says what the user lacks", err)
	}
	if master.Do("EXISTS", "lock:name") != "0" {
		t.Error("the lock was left behind")
	}
	// A grant that could not be undone is not said to have had no effect.
	master.Do("ACL", "SETUSER", "limited", "-del")
	if _, err := s.Acquire(t.Context(), request("other", time.Minute)); err == nil || driver.IsNotApplied(err) != (master.Do("EXISTS", "lock:other") == "0") {
		t.Errorf("Acquire without the right to delete: %v, and the lock is %q", err, master.Do("GET", "lock:other"))
	}
	outcomes, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: "other", Owner: "x", TTL: time.Minute}})
	if err != nil || outcomes[0] != driver.RenewLost {
		t.Errorf("Renew of another's lock: %v, %v", outcomes, err)
	}
}

// TestReplicasThatCount checks which lines of INFO count as connected replicas.
func TestReplicasThatCount(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	// missing with an INFO of our own.
	text := "local redis = {call = function() return ARGV[1] end}\n" + replicasLua + "\nreturn missing(1)"
	for line, counts := range map[string]bool{
		"slave0:ip=::1,port=1,state=online,offset=9,lag=0":                                           true,
		"slave0:ip=::1,port=1,state=online,offset=9,lag=-1":                                          true, // at the turn of a second
		"slave0:ip=::1,port=1,state=online,offset=9,lag=10":                                          true,
		"slave0:ip=::1,port=1,state=online,offset=9,lag=11":                                          false,
		"slave0:ip=::1,port=1,state=send_bulk,offset=0,lag=0":                                        false,
		"slave0:ip=::1,port=1,state=wait_bgsave,offset=0,lag=0\r\nmaster_failover_state:no-failover": false,
		"role:master\r\nconnected_slaves:0":                                                          false,
	} {
		answer := server.Do("EVAL", text, "0", "# Replication\r\n"+line+"\r\n")
		if (answer == "") != counts {
			t.Errorf("%q: %v", line, answer)
		}
	}
}

// A name is kept once replicas have the keep, and until then ReleaseKeep is not confirmed.
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
}
