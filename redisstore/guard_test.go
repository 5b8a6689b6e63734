//go:build unix

package redisstore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// abstains tries until a lock is granted, and checks that the server abstained
// first, and for as long as it must. A clock of milliseconds may be one short.
func abstains(t *testing.T, s *Store, began time.Time, guard time.Duration) {
	t.Helper()
	refusals := 0
	req := request("after", time.Minute)
	eventually(t, "grant after the guard", func() bool {
		res, err := s.Acquire(t.Context(), req)
		var abstain *AbstainError
		switch {
		case errors.As(err, &abstain):
			refusals++
			if !driver.NotApplied(err) || abstain.Left <= 0 || abstain.Left > guard {
				t.Fatalf("%v: it abstains for another %v", err, abstain.Left)
			}
		case err == nil && !res.Granted:
			t.Fatalf("a server that abstains reports the lock as held: %+v", res)
		}
		return res.Granted
	})
	if took := time.Since(began); took < guard-time.Millisecond {
		t.Errorf("a lock was granted %v after the memory was lost, want the guard of %v to pass", took, guard)
	}
	if refusals == 0 {
		t.Error("the server did not abstain")
	}
	release(t, s, req)
}

const guard = 400 * time.Millisecond

func TestGuardAfterRestart(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, &Options{RestartGuard: guard})
	abstains(t, s, time.Now(), guard) // It cannot tell the first start from another.
	first := grant(t, s, "name", time.Minute)
	token, _, _ := s.Lookup(t.Context(), "name")

	server.RestartEmpty()
	abstains(t, s, time.Now(), guard)
	if renew(t, s, first) != driver.RenewLost {
		t.Error("the server remembers what it has forgotten")
	}
	grant(t, s, "name", time.Minute)
	if again, _, _ := s.Lookup(t.Context(), "name"); again.Token <= token.Token {
		t.Errorf("the token after the restart is %d, not above %d", again.Token, token.Token)
	}

	server.Do("FLUSHALL")
	abstains(t, s, time.Now(), guard)
}

// A server that has kept its data abstains as well, but holds go on.
func TestGuardWithData(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	s := open(t, server.Addr, &Options{RestartGuard: guard})
	abstains(t, s, time.Now(), guard)
	held := grant(t, s, "held", time.Minute)
	server.Restart()
	began := time.Now()
	eventually(t, "renewal", func() bool {
		outcomes, _ := s.Renew(t.Context(), []driver.RenewRequest{{Name: held.Name, Owner: held.Owner, TTL: held.TTL}})
		return len(outcomes) == 1 && outcomes[0] == driver.Renewed
	})
	if res, err := s.Acquire(t.Context(), request("held", time.Minute)); err != nil || res.Granted {
		t.Errorf("Acquire of a held lock meanwhile: %+v, %v, want it refused", res, err)
	}
	abstains(t, s, began, guard)
}

func TestGuardAfterPromotion(t *testing.T) {
	t.Parallel()
	master, replica := servers.StartRedis(t), servers.StartRedis(t)
	s := open(t, master.Addr, &Options{RestartGuard: guard})
	abstains(t, s, time.Now(), guard)
	host, port, _ := strings.Cut(master.Addr, ":")
	replica.Do("REPLICAOF", host, port)
	eventually(t, "marker on the replica", func() bool { return strings.HasPrefix(replica.Do("TYPE", s.guardKey()), "string") })
	master.Kill()
	replica.Do("REPLICAOF", "NO", "ONE")
	abstains(t, open(t, replica.Addr, &Options{RestartGuard: guard}), time.Now(), guard)
}

// Without the guard the violation is there: this shows that the tests above
// test something.
func TestNoGuard(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	grant(t, s, "name", time.Minute)
	server.RestartEmpty()
	eventually(t, "second holder", func() bool {
		res, _ := s.Acquire(t.Context(), request("name", time.Minute))
		return res.Granted
	})
}

func TestMinReplicas(t *testing.T) {
	t.Parallel()
	master, replica := servers.StartRedis(t), servers.StartRedis(t)
	s := open(t, master.Addr, &Options{MinReplicas: 1, ReplicaTimeout: 50 * time.Millisecond})
	fails(t, s, driver.ErrNotApplied, "0 replicas have confirmed in time, want 1", "Acquire")
	if got := master.Do("EXISTS", "lock:name"); got != "0" {
		t.Error("an acquisition that was not confirmed has left its lock")
	}

	host, port, _ := strings.Cut(master.Addr, ":")
	replica.Do("REPLICAOF", host, port)
	req := request("name", time.Minute)
	eventually(t, "confirmed acquisition", func() bool {
		res, err := s.Acquire(t.Context(), req)
		return err == nil && res.Granted
	})
	if got := replica.Do("GET", "lock:name"); !strings.HasPrefix(got, req.Owner+"\n") {
		t.Error("the replica does not have what it confirmed")
	}
	eventually(t, "confirmed renewal", func() bool {
		outcomes, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: "name", Owner: req.Owner, TTL: time.Hour}})
		return err == nil && outcomes[0] == driver.Renewed
	})

	replica.Pause()
	outcomes, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: "name", Owner: req.Owner, TTL: 2 * time.Hour}})
	if err == nil || outcomes[0] != driver.RenewUnknown {
		t.Errorf("a renewal that no replica has: %v, %v, want it unknown", outcomes, err)
	}
	res, err := s.Acquire(t.Context(), request("name", time.Minute))
	if err != nil || res.Granted {
		t.Errorf("Acquire of a held lock: %+v, %v, want it refused", res, err)
	}
	if !release(t, s, req) {
		t.Error("a Release needs no replica")
	}
	replica.Resume()
}

// That replicas lag when the server turns out not to know a script says nothing of
// the grant that follows when it does.
func TestConfirmedAtTheSecondSending(t *testing.T) {
	t.Parallel()
	master, replica := servers.StartRedis(t), servers.StartRedis(t)
	host, port, _ := strings.Cut(master.Addr, ":")
	replica.Do("REPLICAOF", host, port)
	eventually(t, "replica", func() bool { return strings.Contains(replica.Do("INFO", "replication"), "master_link_status:up") })
	s := open(t, master.Addr, &Options{MinReplicas: 1, ReplicaTimeout: requestBound / 3})
	replica.Pause()
	master.Do("SET", "something", "that the replica does not confirm")
	resumed := make(chan struct{})
	go func() {
		defer close(resumed)
		eventually(t, "second sending", func() bool { return numberOf(t, master, "eval") > 0 })
		replica.Resume()
	}()
	req := request("name", time.Minute)
	res, err := s.Acquire(t.Context(), req)
	<-resumed
	if err != nil || !res.Granted {
		t.Errorf("Acquire: %+v, %v, want it granted; the key is %q", res, err, master.Do("GET", "lock:name"))
	}
}
