//go:build unix

package redisstore

import (
	"errors"
	"fmt"
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
		var abstain *driver.RetryError
		switch {
		case errors.As(err, &abstain):
			refusals++
			if !driver.IsNotApplied(err) || abstain.After <= 0 || abstain.After > guard {
				t.Fatalf("%v: it abstains for another %v", err, abstain.After)
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

// A server that has lost its memory abstains. By then its clock has passed every token that was no
// further ahead than the guard is long.
func TestGuardAfterRestart(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, &Options{RestartGuard: guard})
	abstains(t, s, time.Now(), guard) // It cannot tell the first start from another.
	first, token := above(t, s, "name", time.Now().Add(guard).UnixMicro())

	server.RestartEmpty()
	abstains(t, s, time.Now(), guard)
	if renew(t, s, first) != driver.Lost {
		t.Error("the server remembers what it has forgotten")
	}
	if again := pair(t, s, "name", 0); again <= token {
		t.Errorf("the token after the restart is %d, not above %d", again, token)
	}

	server.Do("FLUSHALL")
	abstains(t, s, time.Now(), guard)
}

// follow makes a server a replica of another one, or of none that can be reached,
// and waits for its data.
func follow(t *testing.T, replica, master *servers.Redis) {
	t.Helper()
	host, port, _ := strings.Cut(master.Addr, ":")
	replica.Do("REPLICAOF", host, port)
	eventually(t, "replica", func() bool { return strings.Contains(replica.Do("INFO", "replication"), "master_link_status:up") })
	eventually(t, "replica at the master", func() bool { return strings.Contains(master.Do("INFO", "replication"), "state=online") })
}

// demotions are the ways in which a master becomes a replica for a while.
var demotions = map[string]func(t *testing.T, server, other *servers.Redis){
	"before it has synchronised": func(_ *testing.T, server, _ *servers.Redis) { server.Do("REPLICAOF", "127.0.0.1", "1") },
	"with the other's data":      follow,
	"with its own data": func(t *testing.T, server, other *servers.Redis) {
		follow(t, other, server)
		other.Do("REPLICAOF", "NO", "ONE")
		follow(t, server, other) // It goes on from where both were.
	},
}

// A master that was another's replica in between abstains when it is promoted again,
// though it is still the same process and finds its own marker: another master may
// have granted locks meanwhile. A replica that attaches then does not end that.
func TestGuardOfAMasterThatReturns(t *testing.T) {
	t.Parallel()
	for how, demote := range demotions {
		for _, attaches := range []bool{false, true} {
			t.Run(fmt.Sprint(how, ", a replica attaches ", attaches), func(t *testing.T) {
				t.Parallel()
				server, other, replica := servers.StartRedis(t, "--repl-diskless-sync-delay", "0"), servers.StartRedis(t), servers.StartRedis(t)
				s := open(t, server.Addr, &Options{RestartGuard: guard})
				abstains(t, s, time.Now(), guard)
				held := grant(t, s, "held", time.Minute)
				demote(t, server, other)
				fails(t, s, driver.ErrNotApplied, "READONLY", "Acquire")
				server.Do("CONFIG", "SET", "replica-read-only", "no")
				fails(t, s, driver.ErrNotApplied, "READONLY", "Acquire")
				if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: held.Name, Owner: held.Owner}); !driver.IsNotApplied(err) {
					t.Errorf("Release on a replica that can be written to: %v", err)
				}
				place, free := request("held", time.Minute), request("free", time.Minute)
				place.Place, free.Place = time.Minute, time.Minute
				for _, err := range s.runCalls(t.Context(), []*call{s.acquireCall(&place), s.acquireCall(&free)}) { // in one run
					if !driver.IsNotApplied(err) {
						t.Errorf("a replica that can be written to: %v", err)
					}
				}
				if keys := server.Do("KEYS", "*"+queueInfix+"*"); keys != "" {
					t.Errorf("after nothing was changed there is a place: %q", keys)
				}
				server.Do("REPLICAOF", "NO", "ONE")
				if attaches {
					follow(t, replica, server)
				}
				abstains(t, s, time.Now(), guard)
			})
		}
	}
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

// A replica confirms what is there, also where a renewal has nothing to change, since the hold
// lasts longer already.
func TestWhatChangesNothingIsConfirmed(t *testing.T) {
	t.Parallel()
	master, replica := servers.StartRedis(t), servers.StartRedis(t)
	follow(t, replica, master)
	s := open(t, master.Addr, nil)
	again := func(s *Store, req driver.Request) (bool, error) {
		outcomes, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: time.Second}})
		return outcomes[0].State == driver.Held, err
	}
	for _, expiry := range []string{"PEXPIRE", "PERSIST"} {
		replica.Pause()
		req := grant(t, s, "name/"+expiry, time.Minute) // No replica has it.
		if expiry == "PERSIST" {
			master.Do("PERSIST", "lock:"+req.Name)
		}
		// Its connection has written nothing yet, as that of another process.
		confirmed := open(t, master.Addr, &Options{MinReplicas: 1, ReplicaTimeout: 50 * time.Millisecond})
		if done, err := again(confirmed, req); err == nil {
			t.Errorf("%s of what no replica has: %v, %v, want an error", expiry, done, err)
		}
		replica.Resume()
		req = grant(t, s, "name/"+expiry+"/seen", time.Minute)
		if expiry == "PERSIST" {
			master.Do("PERSIST", "lock:"+req.Name)
		}
		before := master.Do("PEXPIRETIME", "lock:"+req.Name)
		eventually(t, "confirmation of a renewal", func() bool {
			done, err := again(confirmed, req)
			return done && err == nil
		})
		if value, want := replica.Do("GET", "lock:"+req.Name), master.Do("GET", "lock:"+req.Name); value != want || !strings.HasPrefix(value, req.Owner) {
			t.Errorf("the replica has %q, the master %q", value, want)
		}
		if after := master.Do("PEXPIRETIME", "lock:"+req.Name); after < before {
			t.Errorf("a renewal has changed the end of the hold from %s to %s", before, after)
		}
	}
}

func infoField(server *servers.Redis, field string) string {
	_, value, _ := strings.Cut(server.Do("INFO", "replication"), "\n"+field+":")
	value, _, _ = strings.Cut(value, "\r\n")
	return value
}

// A server that abstains admits no waiter that it has kept.
func TestGuardAdmitsNoWaiter(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	s := open(t, server.Addr, &Options{RestartGuard: 2 * time.Second})
	eventually(t, "grant", func() bool {
		res, err := s.Acquire(t.Context(), request("name", time.Minute))
		return err == nil && res.Granted
	})
	place := wait(t, s, "name", time.Minute)
	server.Do("DEL", "lock:name") // The server forgets it.
	server.Restart()
	began := time.Now()
	var abstain *driver.RetryError
	if res, err := s.Acquire(t.Context(), request("name", time.Minute)); !errors.As(err, &abstain) {
		t.Errorf("a try at a name that nobody holds: %+v, %v", res, err)
	}
	eventually(t, "turn", func() bool { return renew(t, s, place) == driver.Held })
	if took := time.Since(began); took < 2*time.Second-50*time.Millisecond {
		t.Errorf("it holds after %v", took)
	}
}
