//go:build unix

package redisstore_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// pythonCounter adds one to the number in a file, many times, under a lock of
// redis-py.
const pythonCounter = `
import sys, redis
host, port, path, rounds = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
client = redis.Redis(host=host, port=port)
for _ in range(rounds):
    with client.lock("lock:counter", timeout=60, sleep=0.001):
        with open(path) as f:
            n = int(f.read())
        with open(path, "w") as f:
            f.write(str(n + 1))
`

// python returns an interpreter that has redis-py.
func python(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(name, "-c", "import redis").Run() == nil {
			return name
		}
	}
	t.Fatal("there is no python3 with redis-py, and this test needs it: run internal/servers/install.sh")
	return ""
}

// The lock of redis-py and ours exclude each other: of the increments of an
// unguarded number none is lost.
func TestTogetherWithRedisPy(t *testing.T) {
	t.Parallel()
	interpreter := python(t)
	server := servers.StartRedis(t)
	host, port, _ := strings.Cut(server.Addr, ":")
	path := filepath.Join(t.TempDir(), "counter")
	if err := os.WriteFile(path, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	const rounds = 200
	done := make(chan error, 4)
	for range 2 {
		go func() {
			out, err := exec.Command(interpreter, "-c", pythonCounter, host, port, path, strconv.Itoa(rounds)).CombinedOutput()
			if err != nil {
				err = errors.Join(err, errors.New(string(out)))
			}
			done <- err
		}()
		locks := connect(t, server.Addr, &holdfast.Config{Backoff: holdfast.Backoff{Watched: time.Hour}})
		go func() { done <- count(t, locks, path, rounds) }()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != strconv.Itoa(4*rounds) {
		t.Errorf("after %d increments the counter is %s", 4*rounds, text)
	}
}

func count(t *testing.T, locks *holdfast.Client, path string, rounds int) error {
	for range rounds {
		lock, err := locks.Acquire(t.Context(), "counter", nil)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(text))
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(strconv.Itoa(n+1)), 0o600); err != nil {
			return err
		}
		if err := lock.Release(); err != nil {
			return err
		}
	}
	return nil
}
