package holdfast_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
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

// virtualRun is virtual for a subtest.
func virtualRun(t *testing.T, name string, test func(t *testing.T, ctx context.Context)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { virtual(t, test) })
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

// closedAtLast closes c without its faults when the test ends.
func closedAtLast(t *testing.T, store *faultstore.Store, c *holdfast.Client) *holdfast.Client {
	t.Cleanup(func() {
		setAll(store, nil)
		_ = c.Close() // what it reports is the test's own doing
	})
	return c
}

// kinds are the kinds of stores that differ for a waiter.
var kinds = map[string]func(*faultstore.Store) *faultstore.Store{
	"queue":      func(s *faultstore.Store) *faultstore.Store { return s },
	"no queue":   (*faultstore.Store).Unfair,
	"no notices": (*faultstore.Store).Silent,
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
	noErr(t, lock.Release())
}

// startWaiters starts n goroutines that acquire a lock, each when the one before it waits. It
// returns the channel that receives their locks.
func startWaiters(
	t *testing.T, c *holdfast.Client, name string, o *holdfast.Options, n int,
) <-chan *holdfast.Lock {
	locks := make(chan *holdfast.Lock, n)
	for range n {
		go func() { locks <- acquire(t, c, name, o) }()
		synctest.Wait()
	}
	waits(t, locks)
	return locks
}

// later makes a call in a goroutine of its own, and returns when that waits or has returned.
func later(call func() error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- call() }()
	synctest.Wait()
	return result
}

// waits fails if there is a result.
func waits[T any](t *testing.T, results <-chan T) {
	t.Helper()
	synctest.Wait()
	select {
	case result := <-results:
		t.Fatalf("it does not wait: %v", result)
	default:
	}
}

// within makes a call, fails unless it takes from least to most, and returns its error.
func within(t *testing.T, least, most time.Duration, call func() error) error {
	t.Helper()
	began := time.Now()
	err := call()
	if took := time.Since(began); took < least || took > most {
		t.Errorf("it took %v, want from %v to %v", took, least, most)
	}
	return err
}

// failure returns the error of a call.
func failure[T any](_ T, err error) error { return err }

// wantErr fails unless err matches every target.
func wantErr(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("error is %v, want one that matches %q", err, target)
		}
	}
}

// noErr fails if there is an error.
func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("error is %v, want none", err)
	}
}

// heldError returns the HeldError in an error.
func heldError(t *testing.T, err error) *holdfast.HeldError {
	t.Helper()
	var held *holdfast.HeldError
	if !errors.As(err, &held) {
		t.Fatalf("no HeldError: %v", err)
	}
	return held
}

// breakLock breaks all holds of a name.
func breakLock(t *testing.T, by interface {
	Break(ctx context.Context, name string, token int64) ([]holdfast.Record, error)
}, name string) {
	t.Helper()
	if _, err := by.Break(t.Context(), name, 0); err != nil {
		t.Fatalf("Break: %v", err)
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

// free fails unless the store has nothing under each name.
func free(t *testing.T, c *holdfast.Client, names ...string) {
	t.Helper()
	for _, name := range names {
		records, err := c.Lookup(t.Context(), name)
		if !errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("lock %q: %v, %v, want it free", name, records, err)
		}
	}
}

// setAll sets the fault of all requests that acquire, renew or release.
func setAll(store *faultstore.Store, fault faultstore.Fault) {
	for _, op := range []faultstore.Op{faultstore.Acquire, faultstore.Renew, faultstore.Release} {
		store.Set(op, fault)
	}
}

// far makes every request take a while.
func far(d time.Duration) faultstore.Fault {
	return func(_ context.Context, _ faultstore.Op, apply func()) error {
		time.Sleep(d / 2)
		apply()
		time.Sleep(d / 2)
		return nil
	}
}

// answersLate applies the request at once and answers after d.
func answersLate(d time.Duration) faultstore.Fault {
	return func(_ context.Context, _ faultstore.Op, apply func()) error {
		apply()
		time.Sleep(d)
		return nil
	}
}

// applyAndHang applies the request and never answers.
func applyAndHang(ctx context.Context, op faultstore.Op, apply func()) error {
	apply()
	return faultstore.Hang(ctx, op, apply)
}

// fails fails each request with an error.
func fails(err error) faultstore.Fault {
	return func(context.Context, faultstore.Op, func()) error { return err }
}

// instead has renewals answer with one state in place of another.
func instead(of, other driver.State) func(any) {
	return faultstore.Bent(func(entries *[]driver.Entry) {
		for i, e := range *entries {
			if e.State == of {
				(*entries)[i].State = other
			}
		}
	})
}

// forgets makes a store one that has no holds, but a place for each owner, as after a failover that
// has brought back the holds before them.
var forgets = instead(driver.Held, driver.Waiting)

// loseNotice loses a notice.
func loseNotice(context.Context, faultstore.Op, func()) error { return nil }

// A spyStore is a store that records requests to it, and lets a test send notices.
type spyStore struct {
	driver.Notifier
	send func(name, owner string, token int64) // to the client that was opened last

	mu       sync.Mutex
	acquired []driver.Request
	released []string // owners
	owner    string   // of the last Acquire
	token    int64    // the same
}

func spyOn(store driver.Notifier) *spyStore { return &spyStore{Notifier: store} }

func (s *spyStore) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	s.mu.Lock()
	s.acquired, s.owner = append(s.acquired, req), req.Owner
	s.mu.Unlock()
	res, err := s.Notifier.Acquire(ctx, req)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = res.Token
	return res, err
}

func (s *spyStore) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	s.mu.Lock()
	s.released = append(s.released, req.Owner)
	s.mu.Unlock()
	return s.Notifier.Release(ctx, req)
}

func (s *spyStore) Notify(f func(name, owner string, token int64)) (stop func()) {
	s.send = f
	return s.Notifier.Notify(f)
}

// suspendable gives the clients of the test a boot clock, and returns a function that suspends the
// machine.
func suspendable(t *testing.T) (suspend func(time.Duration)) {
	var suspended atomic.Int64
	began := time.Now()
	t.Cleanup(holdfast.SetBootClock(func() time.Duration {
		return time.Since(began) + time.Duration(suspended.Load())
	}))
	return func(d time.Duration) { suspended.Add(int64(d)) }
}

// A logText collects what is logged from many goroutines.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logText) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

const ms = time.Millisecond

// answersIn is a store that answers each request after d.
func answersIn(d time.Duration) faultstore.Fault {
	return func(ctx context.Context, _ faultstore.Op, apply func()) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
			apply()
			return nil
		}
	}
}

// onEvent returns hooks that call f for each event of one kind.
func onEvent(kind holdfast.EventKind, f func(holdfast.Event)) holdfast.Hooks {
	return holdfast.Hooks{Event: func(_ context.Context, e holdfast.Event) {
		if e.Kind == kind {
			f(e)
		}
	}}
}
