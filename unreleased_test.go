package holdfast_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memstore"
)

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

func (l *logText) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: level}))
}

// A Lock that is dropped without Release is renewed on, and reported once. One that
// is in reach is not reported, whatever holds it: a variable, a LockSet, the work of
// Do; nor is one that was released, lost, or is not renewed.
func TestDroppedLockIsReportedOnce(t *testing.T) {
	const ttl = 30 * time.Second
	virtual(t, func(t *testing.T, ctx context.Context) {
		var text logText
		c := open(t, memstore.New(), &holdfast.Config{Logger: text.logger(slog.LevelWarn), Options: holdfast.Options{TTL: ttl}})
		kept := acquire(t, c, "kept", nil)
		set, err := c.AcquireAll(ctx, []string{"set 1", "set 2"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		var group sync.WaitGroup
		group.Go(func() {
			err := c.Do(ctx, "do", nil, func(context.Context) error { <-ended; return nil })
			if err != nil {
				t.Error(err)
			}
		})
		again := &holdfast.Options{Reentrant: true}
		first := acquire(t, c, "twice", again)
		acquire(t, c, "twice", again)
		acquire(t, c, "dropped", nil)
		acquire(t, c, "not renewed", &holdfast.Options{NoRenew: true})
		if _, err := c.AcquireAll(ctx, []string{"dropped set"}, nil); err != nil {
			t.Fatal(err)
		}
		release(t, acquire(t, c, "released", nil))
		synctest.Wait()

		reported := func() int { return strings.Count(text.String(), "without Release") }
		for range 300 { // The cleanups run at the pace of the machine.
			runtime.GC()
			time.Sleep(ttl / 2)
			if reported() >= 3 {
				break
			}
		}
		for range 5 {
			runtime.GC()
			time.Sleep(ttl)
		}
		for _, name := range []string{"twice", "dropped", `"dropped set"`} {
			want := fmt.Sprintf(`level=WARN msg="lock was dropped without Release; it is renewed until the Client is closed" name=%s token=`, name)
			if n := strings.Count(text.String(), want); n != 1 {
				t.Errorf("%s is reported %d times", name, n)
			}
		}
		if n := reported(); n != 3 {
			t.Errorf("%d records, want 3:\n%s", n, &text)
		}
		if _, err := c.Lookup(ctx, "dropped"); err != nil {
			t.Errorf("what was dropped is no longer held: %v", err)
		}
		close(ended)
		group.Wait()
		release(t, first)
		release(t, kept)
		if err := set.Release(); err != nil {
			t.Error(err)
		}
	})
}

// A Lock that Locks has returned keeps its hold in reach.
func TestLockFromLocksIsInReach(t *testing.T) {
	virtual(t, func(t *testing.T, _ context.Context) {
		var text logText
		c := open(t, memstore.New(), &holdfast.Config{Logger: text.logger(slog.LevelWarn)})
		acquire(t, c, "a", nil)
		acquire(t, c, "b", nil)
		lock := c.Locks()[0]
		for range 300 {
			runtime.GC()
			time.Sleep(holdfast.DefaultTTL / 2)
			if strings.Contains(text.String(), "name=b") {
				break
			}
		}
		if strings.Contains(text.String(), "name=a") || !strings.Contains(text.String(), "name=b") {
			t.Errorf("log:\n%s", &text)
		}
		release(t, lock)
		free(t, c, "a")
	})
}
