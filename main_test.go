package holdfast_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// otherProcess is what the test binary does when a test has started it.
var otherProcess func(folder string) int

// The boot clock does not know virtual time, so that only the tests which are
// about it have one.
func TestMain(m *testing.M) {
	if folder := os.Getenv("HOLDFAST_TEST_FOLDER"); folder != "" {
		os.Exit(otherProcess(folder))
	}
	holdfast.SetBootClock(nil)
	os.Exit(m.Run())
}

// virtual runs a test in virtual time: sleeping costs nothing and is exact. It
// also fails if a goroutine is left behind.
func virtual(t *testing.T, test func(t *testing.T, ctx context.Context)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, t.Context()) })
}

// open returns a client that is closed, without an error, when the test ends.
func open(t *testing.T, store driver.Store, config *holdfast.Config) *holdfast.Client {
	t.Helper()
	c := holdfast.New(store, config)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

// faulty returns a client of a memory store behind faults, and the store.
func faulty(t *testing.T, config *holdfast.Config) (*holdfast.Client, *faultstore.Store) {
	t.Helper()
	store := faultstore.Wrap(memstore.New())
	return closedAtLast(t, store, holdfast.New(store, config)), store
}

func closedAtLast(t *testing.T, store *faultstore.Store, c *holdfast.Client) *holdfast.Client {
	t.Cleanup(func() {
		for _, op := range []faultstore.Op{faultstore.Acquire, faultstore.Renew, faultstore.Release} {
			store.Set(op, nil)
		}
		_ = c.Close() // what it reports is the test's own doing
	})
	return c
}

func acquire(t *testing.T, c *holdfast.Client, name string, o *holdfast.Options) *holdfast.Lock {
	t.Helper()
	lock, err := c.Acquire(t.Context(), name, o)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return lock
}

func release(t *testing.T, lock *holdfast.Lock) {
	t.Helper()
	if err := lock.Release(); err != nil {
		t.Errorf("Release: %v", err)
	}
}

// startWaiters starts n goroutines that acquire a lock, each when the one before it waits. It returns
// the channel that receives their locks.
func startWaiters(t *testing.T, c *holdfast.Client, name string, n int) <-chan *holdfast.Lock {
	locks := make(chan *holdfast.Lock, n)
	for range n {
		go func() { locks <- acquire(t, c, name, nil) }()
		synctest.Wait()
	}
	return locks
}

// wantErr fails unless err matches every target.
func wantErr(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("error is %v, want one that matches %q", err, target)
		}
	}
}

// lookup returns the only record of a name.
func lookup(t *testing.T, c *holdfast.Client, name string) holdfast.Record {
	t.Helper()
	records, err := c.Lookup(t.Context(), name)
	if err != nil || len(records) != 1 {
		t.Fatalf("lock %q: %v, %v, want one record", name, records, err)
	}
	return records[0]
}

// free fails unless the store has nothing under name.
func free(t *testing.T, c *holdfast.Client, name string) {
	t.Helper()
	records, err := c.Lookup(t.Context(), name)
	if !errors.Is(err, holdfast.ErrNotHeld) {
		t.Errorf("lock %q: %v, %v, want it free", name, records, err)
	}
}

const ms = time.Millisecond
