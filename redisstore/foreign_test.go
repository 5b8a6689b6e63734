//go:build unix

package redisstore

import (
	"os"
	"path/filepath"
	"strconv"
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
	for _, name := range foreigners {
		other := startForeigner(t, name, server)
		group.Go(func() {
			if got := other.do("count", "counter", path, strconv.Itoa(each)); got != "counted" {
				t.Errorf("%s has failed: %q", name, got)
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
