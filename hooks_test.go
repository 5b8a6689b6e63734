package holdfast_test

import (
	"context"
	"errors"
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
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

func TestLog(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		var text logText
		c, store := faulty(t, &holdfast.Config{Logger: text.logger()})
		waiting := acquire(t, c, "a", nil)
		wantErr(t, failure(c.Acquire(ctx, "a", &holdfast.Options{Wait: time.Second})), holdfast.ErrHeld)
		release(t, waiting)
		lock := acquire(t, c, "b", nil)
		breakLock(t, store, "b")
		<-lock.Context().Done()
		synctest.Wait()
		for _, want := range []string{
			`level=DEBUG msg="waiting for lock" name=a`, `level=DEBUG msg="lock acquired" name=a`, `level=DEBUG msg="lock released" name=a`, `level=WARN msg="lock lost" name=b store=memory`,
		} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("no %q in the log:\n%s", want, &text)
			}
		}
	})
}

// Each way in which an acquisition and a hold can go has its events, in their order.
func TestEventsOfEachWay(t *testing.T) {
	type setting struct {
		c, other *holdfast.Client
		store    *faultstore.Store
	}
	reentrant := &holdfast.Options{Reentrant: true}
	wait := &holdfast.Options{Wait: time.Second}
	for name, way := range map[string]struct {
		do   func(t *testing.T, ctx context.Context, s setting)
		want []string
	}{
		"released": {func(t *testing.T, _ context.Context, s setting) {
			lock := acquire(t, s.c, "a", nil)
			time.Sleep(time.Second)
			release(t, lock)
			release(t, lock)
		}, []string{"acquire a", "acquired token", "released token held 1s"}},
		"joined": {func(t *testing.T, _ context.Context, s setting) {
			first, second := acquire(t, s.c, "a", reentrant), acquire(t, s.c, "a", reentrant)
			release(t, first)
			time.Sleep(time.Second)
			release(t, second)
		}, []string{"acquire a", "acquired token", "acquire a", "joined token", "released token held 1s"}},
		"kept by ReleaseKeep": {func(t *testing.T, _ context.Context, s setting) {
			noErr(t, acquire(t, s.c, "a", nil).ReleaseKeep(time.Minute))
		}, []string{"acquire a", "acquired token", "kept token left 1m0s"}},
		"handed over and adopted": {func(t *testing.T, _ context.Context, s setting) {
			ticket := given(t, s.c, "a", holdfast.Options{})
			release(t, adopt(t, s.c, ticket, nil))
			wantErr(t, failure(s.c.Adopt(t.Context(), ticket, nil)), holdfast.ErrNotHeld)
		}, []string{
			"acquire a", "acquired token", "handed over token", "adopt a", "acquired token", "released token",
			"adopt a", "failed: ErrNotHeld",
		}},
		"waited for": {func(t *testing.T, _ context.Context, s setting) {
			lock := acquire(t, s.other, "a", nil)
			time.AfterFunc(time.Second, func() { release(t, lock) })
			release(t, acquire(t, s.c, "a", nil))
		}, []string{"acquire a", "waiting for other", "waited 1s", "acquired token took 1s", "released token"}},
		"refused at once": {func(t *testing.T, ctx context.Context, s setting) {
			lock := acquire(t, s.other, "a", nil)
			wantErr(t, failure(s.c.TryAcquire(ctx, "a", nil)), holdfast.ErrHeld)
			release(t, lock)
		}, []string{"try a", "refused: ErrHeld"}},
		"refused after a wait": {func(t *testing.T, ctx context.Context, s setting) {
			lock := acquire(t, s.other, "a", nil)
			wantErr(t, failure(s.c.Acquire(ctx, "a", wait)), holdfast.ErrHeld, context.DeadlineExceeded)
			release(t, lock)
		}, []string{"acquire a", "waiting for other", "waited 1s: ErrHeld", "refused took 1s: ErrHeld"}},
		"refused in the queue of the Client": {func(t *testing.T, ctx context.Context, s setting) {
			lock := acquire(t, s.c, "a", nil)
			wantErr(t, failure(s.c.Acquire(ctx, "a", wait)), holdfast.ErrHeld, context.DeadlineExceeded)
			release(t, lock)
		}, []string{
			"acquire a", "acquired token", "acquire a", "waiting for me", "waited 1s: ErrHeld", "refused took 1s: ErrHeld",
			"released token held 1s",
		}},
		"failed": {func(t *testing.T, ctx context.Context, s setting) {
			s.store.Set(faultstore.Acquire, faultstore.Refuse)
			wantErr(t, failure(s.c.TryAcquire(ctx, "a", nil)), holdfast.ErrUnavailable)
		}, []string{"try a", "failed: ErrUnavailable"}},
		"failed during a wait": {func(t *testing.T, ctx context.Context, s setting) {
			lock := acquire(t, s.other, "a", nil)
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, func() { _ = s.c.Close() })
			wantErr(t, failure(s.c.Acquire(ctx, "a", nil)), holdfast.ErrClosed)
			cancel()
			release(t, lock)
		}, []string{"acquire a", "waiting for other", "waited 1s: ErrClosed", "failed took 1s: ErrClosed"}},
		"failed after Close": {func(t *testing.T, ctx context.Context, s setting) {
			_ = s.c.Close()
			wantErr(t, failure(s.c.Acquire(ctx, "a", nil)), holdfast.ErrClosed)
		}, nil},
		"in doubt and lost": {func(t *testing.T, ctx context.Context, s setting) {
			lock := acquire(t, s.c, "a", &holdfast.Options{NoRenew: true})
			s.store.Once(faultstore.Renew, faultstore.Refuse)
			wantErr(t, lock.Extend(ctx, time.Minute), holdfast.ErrUnavailable)
			<-lock.Context().Done()
			wantErr(t, lock.Release(), holdfast.ErrExpired)
		}, []string{
			"acquire a", "acquired token", "in doubt token left 29.698s of 30s: ErrUnavailable", "lost token held 29.7s: ErrExpired",
		}},
		"extended": {func(t *testing.T, ctx context.Context, s setting) {
			lock := acquire(t, s.c, "a", &holdfast.Options{NoRenew: true})
			for range 2 { // The deadline is that of the hour both times.
				noErr(t, lock.Extend(ctx, time.Hour))
			}
			release(t, lock)
		}, []string{
			"acquire a", "acquired token", "renewed token left 29.698s of 30s", "renewed token left 59m23.998s of 30s", "released token",
		}},
		"at its greatest time": {func(t *testing.T, ctx context.Context, s setting) {
			lock := acquire(t, s.c, "a", &holdfast.Options{MaxHold: time.Second})
			<-lock.Context().Done()
			wantErr(t, lock.Release(), holdfast.ErrMaxHold)
		}, []string{"acquire a", "acquired token", "lost token held 1s: ErrMaxHold"}},
		"broken": {func(t *testing.T, ctx context.Context, s setting) {
			lock := acquire(t, s.c, "a", nil)
			breakLock(t, s.c, "a")
			wantErr(t, lock.Release(), holdfast.ErrTaken)
		}, []string{"acquire a", "acquired token", "lost token: ErrTaken"}},
		"lost, as its release shows": {func(t *testing.T, ctx context.Context, s setting) {
			lock := acquire(t, s.c, "a", nil)
			breakLock(t, s.other, "a")
			wantErr(t, lock.Release(), holdfast.ErrTaken)
		}, []string{"acquire a", "acquired token", "lost token: ErrTaken"}},
		"not confirmed": {func(t *testing.T, ctx context.Context, s setting) {
			lock := acquire(t, s.c, "a", nil)
			s.store.Set(faultstore.Release, faultstore.Hang)
			wantErr(t, lock.Release(), holdfast.ErrUnavailable)
		}, []string{"acquire a", "acquired token", "released token held 6s took 6s: ErrUnavailable"}},
		"all or none": {func(t *testing.T, ctx context.Context, s setting) {
			lock := acquire(t, s.other, "b", nil)
			wantErr(t, failure(s.c.TryAcquireAll(ctx, []string{"a", "b"}, nil)), holdfast.ErrHeld)
			release(t, lock)
		}, []string{"try a", "acquired token", "try b", "refused: ErrHeld", "released token"}},
	} {
		virtualRun(t, name, func(t *testing.T, ctx context.Context) {
			var mu sync.Mutex
			var got []string
			note := func(text string) {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, text)
			}
			s := setting{store: faultstore.Wrap(memstore.New())}
			s.c = holdfast.New(s.store, &holdfast.Config{
				Holder: "me", Prefix: "p/", LocalTurn: -1,
				Hooks: holdfast.Hooks{
					Start: func(ctx context.Context, s holdfast.Start) context.Context {
						note(s.Op + " " + s.Name)
						return ctx
					},
					Event: func(_ context.Context, e holdfast.Event) {
						if e.Kind != holdfast.EventRequest {
							note(eventText(e))
						}
					},
				},
			})
			s.other = open(t, s.store.Store, &holdfast.Config{Holder: "other", Prefix: "p/"})
			way.do(t, ctx, s)
			setAll(s.store, nil)
			_ = s.c.Close()
			if !slices.Equal(got, way.want) {
				t.Errorf("events:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(way.want, "\n"))
			}
		})
	}
}

// eventText returns what differs between events.
func eventText(e holdfast.Event) string {
	text := string(e.Kind)
	if e.By != nil {
		text += " for " + e.By.Holder
	}
	if e.Token != 0 {
		text += " token"
	}
	if e.Left != 0 {
		text += fmt.Sprint(" left ", e.Left)
	}
	if e.TTL != 0 && e.Kind != holdfast.EventAcquired && e.Kind != holdfast.EventJoined {
		text += fmt.Sprint(" of ", e.TTL)
	}
	if e.Held != 0 {
		text += fmt.Sprint(" held ", e.Held.Round(10*ms))
	}
	if e.Kind == holdfast.EventWaited {
		text += fmt.Sprint(" ", e.Took)
	} else if e.Took != 0 {
		text += fmt.Sprint(" took ", e.Took.Round(10*ms))
	}
	for _, sentinel := range []struct {
		name string
		err  error
	}{
		{"ErrHeld", holdfast.ErrHeld}, {"ErrExpired", holdfast.ErrExpired}, {"ErrTaken", holdfast.ErrTaken},
		{"ErrMaxHold", holdfast.ErrMaxHold}, {"ErrUnavailable", holdfast.ErrUnavailable},
		{"ErrNotHeld", holdfast.ErrNotHeld}, {"ErrClosed", holdfast.ErrClosed},
	} {
		if errors.Is(e.Err, sentinel.err) {
			return text + ": " + sentinel.name
		}
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Close returns after the hook for a loss that another goroutine has found, and for a release that
// another goroutine makes.
func TestCloseWaitsForHooks(t *testing.T) {
	for name, end := range map[string]func(lock *holdfast.Lock, suspend func(time.Duration)){
		"loss": func(lock *holdfast.Lock, suspend func(time.Duration)) {
			suspend(time.Hour) // No timer has found the loss.
			_ = lock.Err()
		},
		"release": func(lock *holdfast.Lock, _ func(time.Duration)) { _ = lock.Release() },
	} {
		virtualRun(t, name, func(t *testing.T, ctx context.Context) {
			suspend := suspendable(t)
			in, ended := make(chan struct{}, 1), false
			c := holdfast.New(faultstore.Wrap(memstore.New()), &holdfast.Config{Hooks: holdfast.Hooks{
				Event: func(_ context.Context, e holdfast.Event) {
					if e.Kind == holdfast.EventLost || e.Kind == holdfast.EventReleased {
						in <- struct{}{}
						time.Sleep(time.Hour)
						ended = true
					}
				},
			}})
			lock := acquire(t, c, "a", &holdfast.Options{NoRenew: true})
			var group sync.WaitGroup
			group.Go(func() { end(lock, suspend) })
			<-in
			_ = c.Close()
			if !ended {
				t.Error("Close has not waited for the hook")
			}
			group.Wait()
		})
	}
}

// Each hook is called with the values of the context that Start has returned, and so are the
// requests and Lock.Context.
func TestContextOfStart(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		type key struct{ n int }
		add := func(n int) holdfast.Hooks {
			return holdfast.Hooks{Start: func(ctx context.Context, _ holdfast.Start) context.Context {
				return context.WithValue(ctx, key{n}, n)
			}}
		}
		check := func(what string, ctx context.Context) {
			if ctx.Value(key{1}) != 1 || ctx.Value(key{2}) != 2 {
				t.Errorf("%s has not the values", what)
			}
		}
		store := faultstore.Wrap(memstore.New())
		store.Set(faultstore.Acquire, func(ctx context.Context, op faultstore.Op, apply func()) error {
			check(string(op), ctx)
			apply()
			return nil
		})
		c := open(t, store, &holdfast.Config{Hooks: holdfast.JoinHooks(
			holdfast.Hooks{}, add(1), add(2),
			holdfast.Hooks{Event: func(ctx context.Context, e holdfast.Event) {
				if e.Op == "" || e.Op == "acquire" {
					check(string(e.Kind), ctx)
				}
			}},
		)})
		lock := acquire(t, c, "a", &holdfast.Options{Wait: time.Minute, Detached: true, NoRenew: true})
		check("Lock.Context", lock.Context())
		lock = adopt(t, c, handOver(t, lock), nil)
		check("Lock.Context after Adopt", lock.Context())
		release(t, lock)
		set := acquireAll(t, c, abc, nil)
		check("Lock.Context of a set", c.Locks()[0].Context())
		breakLock(t, c, "a")
		_ = set.Release()
	})
}

// Requests are reported with their outcome: that a lock is held or free is an answer.
func TestRequestEvents(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		var got []string
		c, store := faulty(t, &holdfast.Config{Hooks: onEvent(holdfast.EventRequest, func(e holdfast.Event) {
			got = append(got, fmt.Sprint(e.Op, " ", e.Took, " ", e.Err != nil))
		})})
		free(t, c, "a")
		other := acquire(t, open(t, store.Store, nil), "a", nil)
		wantErr(t, failure(c.TryAcquire(ctx, "a", nil)), holdfast.ErrHeld)
		release(t, other)
		lock := acquire(t, c, "a", nil)
		noErr(t, lock.Extend(ctx, time.Minute))
		store.Once(faultstore.Renew, faultstore.Hang)
		wantErr(t, lock.Extend(ctx, time.Minute), holdfast.ErrUnavailable)
		release(t, lock)
		wantErr(t, failure(c.Break(ctx, "a", 0)), holdfast.ErrNotHeld)
		want := []string{
			"lookup 0s false", "acquire 0s false", "acquire 0s false", "renew 0s false", "renew 3s true", "release 0s false",
			"break 0s false",
		}
		if !slices.Equal(got, want) {
			t.Errorf("requests %q, want %q", got, want)
		}
	})
}

// A slow hook delays its own lock, and costs no other one.
func TestSlowHookCostsNoOtherLock(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		slow := onEvent(holdfast.EventRenewed, func(holdfast.Event) { time.Sleep(50 * ms) })
		c, _ := faulty(t, &holdfast.Config{Hooks: slow})
		var locks []*holdfast.Lock
		for i := range 100 {
			locks = append(locks, acquire(t, c, fmt.Sprint("n", i), &holdfast.Options{TTL: 3 * time.Second}))
		}
		time.Sleep(10 * time.Second)
		for _, lock := range locks {
			noErr(t, lock.Err())
		}
	})
}

// A log handler may call the Client: it is called without a lock of the Client, also for the first
// failure of an outage.
func TestLogHandlerCallsTheClient(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		var c *holdfast.Client
		logged := make(chan bool, 10)
		logger := slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
			c.Locks()
			logged <- true
			return len(b), nil
		}), nil))
		c, store := faulty(t, &holdfast.Config{Logger: logger})
		store.Once(faultstore.Acquire, faultstore.LoseReply)
		release(t, acquire(t, c, "a", nil))
		<-logged
	})
}

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// A record is one line in a log.
func TestRecordAsText(t *testing.T) {
	rec := holdfast.Record{Name: "x", Holder: "db1/7/A", Token: 5, Remaining: 2500 * ms, Limit: 4, Waiting: 3}
	for _, c := range []struct{ got, want string }{
		{rec.String(), `"x" held by "db1/7/A" under token 5, one of 4 slots, 2.5s left unless renewed, 3 waiting`},
		{holdfast.Record{Name: "x", Kept: true, Limit: driver.Shared}.String(), `"x" kept after its release, shared`},
		{holdfast.Record{}.String(), "no hold"},
		{holdfast.Record{Name: "a"}.String(), `"a" held by an unknown holder`},
		{(&holdfast.HeldError{Record: holdfast.Record{Holder: "b"}}).Error(), `held by "b"`},
		{(&holdfast.HeldError{Record: holdfast.Record{Holder: "b", Limit: driver.Shared}}).Error(), `held by "b", shared`},
		{(&holdfast.HeldError{Record: holdfast.Record{Holder: "b", Limit: 5}, Self: true}).Error(), `held by "b", one of 5 slots, this very client`},
	} {
		if c.got != c.want {
			t.Errorf("%s\nwant %s", c.got, c.want)
		}
	}
	if token := holdfast.FromContext(context.Background()).Token(); token != 0 {
		t.Errorf("the token of no lock is %d", token)
	}
}
