//go:build unix

package redisstore

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

func keys(server *servers.Redis) []string {
	list := strings.Fields(server.Do("KEYS", "*"))
	slices.Sort(list)
	return list
}

// What other clients rely on: the key and its value.
func TestWireFormat(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	req := grant(t, s, "invoices/42", time.Minute)
	value := server.Do("GET", "lock:invoices/42")
	if owner, public, _ := strings.Cut(value, "\n"); owner != req.Owner || strings.Contains(public, req.Owner) {
		t.Errorf("the value of the key is %q, want the owner on its first line, and there only", value)
	}
	if left, _ := strconv.Atoi(server.Do("PTTL", "lock:invoices/42")); left <= 0 || left > 60_000 {
		t.Errorf("the key expires in %d ms, want 60000 at most", left)
	}
	if got := server.Do("SET", "lock:invoices/42", "x", "NX"); got == "OK" {
		t.Error("a foreign SET NX took a lock that is held")
	}
	want := []string{"lock:\x1fcounter", "lock:invoices/42"}
	if got := keys(server); !slices.Equal(got, want) {
		t.Errorf("the keys of a lock are %q, want %q", got, want)
	}
	release(t, s, req)
	if got := keys(server); !slices.Equal(got, want[:1]) {
		t.Errorf("after the release the keys are %q, want the counter only", got)
	}
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
