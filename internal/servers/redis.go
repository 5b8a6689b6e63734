//go:build unix

package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis is a redis-server.
type Redis struct {
	*Process
	Addr string // host:port
	dir  string
}

// StartRedis starts a Redis that keeps its data in memory only. The args are configuration, as in
// "--appendonly", "yes".
func StartRedis(tb testing.TB, args ...string) *Redis {
	tb.Helper()
	dir, port := tb.TempDir(), strconv.Itoa(freePort(tb))
	addr := net.JoinHostPort("127.0.0.1", port)
	base := []string{
		"--port", port, "--bind", "127.0.0.1", "--dir", dir,
		"--save", "", "--appendonly", "no", "--protected-mode", "no", "--daemonize", "no",
	}
	return &Redis{Addr: addr, dir: dir, Process: runRedis(tb, addr, dir, append(base, args...)...)}
}

// StartRedises starts n independent Redis servers.
func StartRedises(tb testing.TB, n int, args ...string) []*Redis {
	tb.Helper()
	nodes := make([]*Redis, n)
	for i := range nodes {
		nodes[i] = StartRedis(tb, args...)
	}
	return nodes
}

// runRedis runs a Redis server or a Sentinel.
func runRedis(tb testing.TB, addr, dir string, args ...string) *Process {
	tb.Helper()
	return runServer(tb, serverSpec{
		name: "redis-server", path: os.Getenv("TEST_REDIS_SERVER"), args: args, dir: dir,
		ready: func() error { return pingRedis(addr) },
	})
}

// RestartEmpty kills the server and starts it again without data.
func (r *Redis) RestartEmpty() {
	r.tb.Helper()
	r.Kill()
	for _, pattern := range []string{"*.rdb", "appendonlydir", "*.aof"} {
		paths, _ := filepath.Glob(filepath.Join(r.dir, pattern)) // The patterns are well formed.
		for _, path := range paths {
			if err := os.RemoveAll(path); err != nil {
				r.tb.Fatal(err)
			}
		}
	}
	r.Start()
}

// Do sends a command on a connection of its own and returns the reply as text.
func (r *Redis) Do(args ...string) string {
	r.tb.Helper()
	reply, err := sendCommand(r.Addr, args...)
	if err != nil {
		r.tb.Fatalf("%s of %s: %v", args[0], r.Addr, err)
	}
	return reply
}

// pingRedis returns nil if the server responds to commands. A server that requires a password does.
func pingRedis(addr string) error {
	_, err := sendCommand(addr, "PING")
	if err != nil && strings.HasPrefix(err.Error(), "NOAUTH") {
		return nil
	}
	return err
}

// sendCommand sends a command on a new connection.
func sendCommand(addr string, args ...string) (string, error) {
	client := redis.NewClient(&redis.Options{
		Addr: addr, Protocol: 2, DisableIdentity: true, DialerRetries: 1, MaxRetries: -1,
		DialTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
	})
	defer client.Close()
	command := make([]any, len(args))
	for i, arg := range args {
		command[i] = arg
	}
	reply, err := client.Do(context.Background(), command...).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return replyText(reply), err
}

// replyText returns a reply as text, of an array the elements as lines.
func replyText(reply any) string {
	elements, ok := reply.([]any)
	if !ok {
		return fmt.Sprint(reply)
	}
	lines := make([]string, len(elements))
	for i, element := range elements {
		lines[i] = replyText(element)
	}
	return strings.Join(lines, "\n")
}
