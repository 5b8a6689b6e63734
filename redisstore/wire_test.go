//go:build unix

package redisstore

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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
