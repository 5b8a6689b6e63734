//go:build unix

package bench

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	rueidislib "github.com/redis/rueidis/rueidislock"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/redisstore"
)

// foreignTTL is short, and far longer than a busy machine takes for a request.
const foreignTTL = 2 * time.Second

// A foreign is a lock of another library, for one key.
type foreign struct {
	prefix string // of redisstore, under which the two share a lock
	renews bool

	// try returns a function that releases, and nil if somebody else has the lock.
	try func(ctx context.Context) (release func() error, err error)
}

// foreigners are the libraries of the guide's table of other libraries.
func foreigners(t *testing.T, server *servers.Redis) map[string]foreign {
	client := newRedis(server.Addr)
	t.Cleanup(func() { _ = client.Close() })
	locker, err := rueidislib.NewLocker(rueidislib.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{server.Addr}}, KeyValidity: foreignTTL,
		KeyMajority: 1, NoLoopTracking: true, TryNextAfter: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locker.Close)
	return map[string]foreign{
		"redsync":   {prefix: "lock:", try: tryRedsync(client)},
		"redislock": {prefix: "lock:", try: tryRedislock(client)},
		"rueidislock": {prefix: "rueidislock:0:", renews: true, try: func(ctx context.Context) (func() error, error) {
			_, cancel, err := locker.TryWithContext(ctx, "job")
			if errors.Is(err, rueidislib.ErrNotLocked) {
				return nil, nil
			}
			return func() error { cancel(); return nil }, err
		}},
	}
}

func tryRedsync(client *redis.Client) func(context.Context) (func() error, error) {
	return func(ctx context.Context) (func() error, error) {
		mutex := redsync.New(goredis.NewPool(client)).NewMutex("lock:job", redsync.WithExpiry(foreignTTL))
		err := mutex.TryLockContext(ctx)
		if taken := (*redsync.ErrTaken)(nil); errors.As(err, &taken) {
			return nil, nil
		}
		return func() error { _, err := mutex.UnlockContext(ctx); return err }, err
	}
}

func tryRedislock(client *redis.Client) func(context.Context) (func() error, error) {
	return func(ctx context.Context) (func() error, error) {
		lock, err := redislock.Obtain(ctx, client, "lock:job", foreignTTL, nil)
		if errors.Is(err, redislock.ErrNotObtained) {
			return nil, nil
		}
		return func() error { return lock.Release(ctx) }, err
	}
}

// TestForeignLibraries checks the guide on libraries that share locks with package
// holdfast: each excludes the other; a lock that is not released
// expires there, and is renewed here.
func TestForeignLibraries(t *testing.T) {
	for _, name := range []string{"redsync", "redislock", "rueidislock"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servers.StartRedis(t)
			other := foreigners(t, server)[name]
			ctx := t.Context()
			client := newRedis(server.Addr)
			defer client.Close()
			locks := holdfast.New(redisstore.New(client, &redisstore.Options{Prefix: other.prefix}), nil)
			defer locks.Close()

			release, err := other.try(ctx)
			if err != nil || release == nil {
				t.Fatalf("a free lock: held by another: %v, %v", release == nil, err)
			}
			if _, err := locks.TryAcquire(ctx, "job", nil); !errors.Is(err, holdfast.ErrHeld) {
				t.Errorf("the other has the lock, and TryAcquire returns %v", err)
			}
			if other.renews {
				_, err := locks.Acquire(ctx, "job", &holdfast.Options{Wait: 2 * foreignTTL})
				if !errors.Is(err, holdfast.ErrHeld) {
					t.Errorf("the other renews its lock, and Acquire returns %v", err)
				}
				if err := release(); err != nil {
					t.Errorf("release there: %v", err)
				}
			}
			lock, err := locks.Acquire(ctx, "job", &holdfast.Options{TTL: foreignTTL, Wait: 5 * foreignTTL})
			if err != nil {
				t.Fatalf("after the end of the other's lock: %v", err)
			}
			for began := time.Now(); time.Since(began) < 2*foreignTTL; time.Sleep(foreignTTL / 10) {
				if release, err := other.try(ctx); release != nil || err != nil {
					t.Fatalf("we have the lock; the other gets it: %v, %v", release != nil, err)
				}
			}
			if err := lock.Release(); err != nil {
				t.Fatal(err)
			}
			if release, err := other.try(ctx); err != nil || release == nil {
				t.Errorf("after our release: held by another: %v, %v", release == nil, err)
			}
		})
	}
}
