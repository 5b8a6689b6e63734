package holdfast_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memstore"
)

func TestHooks(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		var mu sync.Mutex
		var events []string
		note := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, fmt.Sprintf(format, args...))
		}
		hooks := holdfast.Hooks{
			Contended: func(name string, by holdfast.Record) { note("%s contended by %s", name, by.Holder) },
			Waited:    func(name string, d time.Duration, err error) { note("%s waited %v: %v", name, d, err) },
			Acquired:  func(name string, token int64, d time.Duration) { note("%s acquired after %v", name, d) },
			Renewed:   func(name string, margin time.Duration) { note("%s renewed with %v left", name, margin) },
			Lost:      func(name string, held time.Duration, reason error) { note("%s lost after %v", name, held) },
			Released:  func(name string, held time.Duration, err error) { note("%s released after %v: %v", name, held, err) },
		}
		store := memstore.New()
		c := open(t, store, &holdfast.Config{Hooks: hooks, Prefix: "p:", Options: holdfast.Options{TTL: 12 * time.Second}})
		other := open(t, store, &holdfast.Config{Holder: "other", Prefix: "p:"})
		first := acquire(t, other, "a", nil)
		go func() {
			time.Sleep(3 * time.Second)
			release(t, first)
		}()
		lock := acquire(t, c, "a", nil)
		time.Sleep(5 * time.Second)
		release(t, lock)
		lock = acquire(t, c, "a", nil)
		time.Sleep(time.Second)
		if _, err := other.Break(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		<-lock.Context().Done()
		synctest.Wait()
		want := []string{
			"a contended by other",
			"a waited 3s: <nil>",
			"a acquired after 3s",
			"a renewed with 3.281333334s left", // The grant by the notice had the rest of the place.
			"a renewed with 7.878s left",
			"a released after 5s: <nil>",
			"a acquired after 0s",
			"a lost after 4s",
		}
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(events, want) {
			t.Errorf("events:\n%s\nwant:\n%s", strings.Join(events, "\n"), strings.Join(want, "\n"))
		}
	})
}

func TestLog(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		var text bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c, store := faulty(t, &holdfast.Config{Logger: logger})
		release(t, acquire(t, c, "a", nil))
		lock := acquire(t, c, "b", nil)
		if _, _, err := store.Break(ctx, driver.BreakRequest{Name: "b"}); err != nil {
			t.Fatal(err)
		}
		<-lock.Context().Done()
		synctest.Wait()
		for _, want := range []string{
			`level=DEBUG msg="lock acquired" name=a`, `level=DEBUG msg="lock released" name=a`, `level=WARN msg="lock lost" name=b store=memory`,
		} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("no %q in the log:\n%s", want, &text)
			}
		}
	})
}
