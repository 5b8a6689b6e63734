//go:build unix

package redisstore

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/internal/storecheck"
)

func openFromURL(t *testing.T, text string) *Store {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openURL(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.(*Store)
}

var allVerbs = []string{"Acquire", "Renew", "Release", "Lookup", "Break", "List"}

// A replica, whose data may be old, answers nothing: neither that a name is held, nor that it is
// free, nor that a hold is there, nor that it is lost.
func TestReplica(t *testing.T) {
	t.Parallel()
	master, replica := servers.StartRedis(t, "--repl-diskless-sync-delay", "0"), servers.StartRedis(t)
	follow(t, replica, master)
	s := open(t, replica.Addr, nil)
	fails(t, s, driver.ErrNotApplied, "replica", allVerbs...)
	held, atMaster := request("name", time.Minute), open(t, master.Addr, nil)
	if res, err := atMaster.Acquire(t.Context(), held); err != nil || !res.Granted {
		t.Fatal(res, err)
	}
	eventually(t, "hold at the replica", func() bool { return replica.Do("EXISTS", "lock:name") == "1" })
	fails(t, s, driver.ErrNotApplied, "replica", allVerbs...)
	held.TTL, s.listener.channel = held.TTL/2, atMaster.listener.channel // so that a renewal has nothing to change
	storecheck.Fails(t, s, held, driver.ErrNotApplied, "replica", "Acquire", "Renew", "Release")
}

// The owner is the first line of a lock's value, and is never taken for more of it.
func TestOwnerOfTwoLines(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	held := grant(t, s, "name", time.Minute)
	rec, _, _ := look(s, t.Context(), "name")
	for _, owner := range []string{"", held.Owner + "\n" + strconv.FormatInt(rec.Token, 10)} {
		_, err := s.Acquire(t.Context(), driver.Request{Name: "name", Owner: owner, TTL: time.Minute})
		_, err2 := s.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: owner})
		_, err3 := s.Renew(t.Context(), []driver.RenewRequest{{Name: "name", Owner: owner, TTL: time.Minute}})
		for _, err := range []error{err, err2, err3} {
			if !errors.Is(err, driver.ErrInvalid) || strings.Contains(err.Error(), held.Owner) {
				t.Errorf("an owner of %d bytes: %v", len(owner), err)
			}
		}
	}
	if !release(t, s, held) {
		t.Error("the hold is gone")
	}
}
