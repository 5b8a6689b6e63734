//go:build unix

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// The requests of clients are counted, and the commands that their scripts run are not.
func TestCountRequests(t *testing.T) {
	server := servers.StartRedis(t)
	before := readRedis(server)
	counted := make(chan int)
	const span = 2 * time.Second
	go func() {
		n, err := countRequests(server.Addr, span)
		if err != nil {
			t.Error(err)
		}
		counted <- n
	}()
	polls := 1
	for ; !strings.Contains(server.Do("CLIENT", "LIST"), "cmd=monitor"); polls++ {
	}
	const n = 100
	for range n {
		server.Do("EVAL", `redis.call("SET", "a", 1) return redis.call("GET", "a")`, "0")
	}
	got := <-counted
	if used := readRedis(server).since(before); used.commands < 3*n || used.in <= 0 || used.out <= 0 || used.cpu < 0 {
		t.Errorf("the server reports %+v for %d scripts of two commands", used, n)
	}
	if got < n || got > n+polls {
		t.Errorf("%d requests were counted, and %d were sent", got, n)
	}
}
