//go:build unix

package bench

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// The libraries that docs/migrating.md has share locks with Redis exclude us, and we exclude them.
func TestForeignLibraries(t *testing.T) {
	t.Parallel()
	addrs := []string{servers.StartRedis(t).Addr}
	contenders := Redis()
	ours := prefixed{open(t, contenders[0], addrs), ""}
	for _, c := range contenders[1:] {
		if c.Name == "redsync" || c.Name == "redislock" {
			other := prefixed{open(t, c, addrs), "lock:"}
			excludeEachOther(t, other, ours)
			excludeEachOther(t, ours, other)
		}
	}
}

// prefixed is a Locker with another prefix of names.
type prefixed struct {
	Locker
	prefix string
}

func (l prefixed) Acquire(ctx context.Context, name string) (Held, error) {
	return l.Locker.Acquire(ctx, l.prefix+name)
}

func excludeEachOther(t *testing.T, first, second Locker) {
	t.Helper()
	held, err := first.Acquire(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	brief, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := second.Acquire(brief, "job"); err == nil {
		t.Fatal("two hold one lock")
	}
	var next Held
	var group sync.WaitGroup
	group.Go(func() { next, err = second.Acquire(t.Context(), "job") })
	if err := held.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
	if group.Wait(); err != nil {
		t.Fatalf("the waiter: %v", err)
	}
	if err := next.Release(t.Context()); err != nil {
		t.Errorf("release by the waiter: %v", err)
	}
}

const ttl = 10 * time.Second

func open(t *testing.T, c Contender, addrs []string) Locker {
	t.Helper()
	locker, err := c.Open(Options{Servers: addrs, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locker.Close(); err != nil {
			t.Error(err)
		}
	})
	return locker
}
