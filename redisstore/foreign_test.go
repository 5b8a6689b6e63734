//go:build unix

package redisstore

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// Five clients of three languages add to a number that only the lock guards, and
// none of the increments is lost.
func TestCounterInThreeLanguages(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	path := filepath.Join(t.TempDir(), "counter")
	if err := os.WriteFile(path, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	each := rounds(t, 200)
	var group sync.WaitGroup
	foreigners := []string{"redis-py"}
	if os.Getenv("TEST_WHOLE") != "" {
		foreigners = append(foreigners, "redlock4", "redlock5", "redis-semaphore")
	}
	host, port, _ := strings.Cut(server.Addr, ":")
	for _, name := range foreigners {
		args := []string{"node", "testdata/interop/lock.js", name}
		if name == "redis-py" {
			args = []string{python(t), "testdata/interop/lock.py"}
		} else if _, err := os.Stat("testdata/interop/node_modules"); err != nil {
			t.Fatalf("the packages of npm are not installed: run \"scripts/needs all\": %v", err)
		}
		args = append(args, host, port, "counter", path, strconv.Itoa(each))
		group.Go(func() {
			if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", name, err, out)
			}
		})
	}
	for range 2 {
		locks := locksOf(t, open(t, server.Addr, &Options{Prefix: "mutex:"}))
		group.Go(func() {
			if err := count(t, locks, path, each); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := strconv.Itoa((len(foreigners) + 2) * each); string(text) != want {
		t.Errorf("after %s increments the counter is %s", want, text)
	}
}

// python returns an interpreter that has redis-py.
func python(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(name, "-c", "import redis").Run() == nil {
			return name
		}
	}
	t.Fatal("there is no python3 with redis-py, and this test needs it: run scripts/needs")
	return ""
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

// rounds is how often a proof is repeated: so many times by default, and as
// TEST_ROUNDS says for a long run.
func rounds(t *testing.T, byDefault int) int {
	t.Helper()
	text := os.Getenv("TEST_ROUNDS")
	if text == "" {
		return byDefault
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("TEST_ROUNDS=%q is not a number of rounds", text)
	}
	return n
}
