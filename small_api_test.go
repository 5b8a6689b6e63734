package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

func firstError(ctx context.Context, c *holdfast.Client) error {
	for _, err := range c.List(ctx, "") {
		return err
	}
	return nil
}

// doVerbs returns a call of each method of c that runs work.
func doVerbs(ctx context.Context, c *holdfast.Client, work func(context.Context) error) map[string]func() error {
	value := func(ctx context.Context) (int, error) { return 0, work(ctx) }
	if work == nil {
		value = nil
	}
	return map[string]func() error{
		"Do":      func() error { return c.Do(ctx, "a", nil, work) },
		"TryDo":   func() error { return c.TryDo(ctx, "a", nil, work) },
		"DoAll":   func() error { return c.DoAll(ctx, []string{"a", "b"}, nil, work) },
		"DoValue": func() error { return failure(holdfast.DoValue(ctx, c, "a", nil, value)) },
	}
}

// verbs returns a call of each method of c that takes a context.
func verbs(ctx context.Context, c *holdfast.Client, ticket holdfast.Ticket) map[string]func() error {
	calls := doVerbs(ctx, c, nothing)
	maps.Copy(calls, map[string]func() error{
		"Acquire":       func() error { return failure(c.Acquire(ctx, "a", nil)) },
		"TryAcquire":    func() error { return failure(c.TryAcquire(ctx, "a", nil)) },
		"AcquireAll":    func() error { return failure(c.AcquireAll(ctx, []string{"a", "b"}, nil)) },
		"TryAcquireAll": func() error { return failure(c.TryAcquireAll(ctx, []string{"a", "b"}, nil)) },
		"Adopt":         func() error { return failure(c.Adopt(ctx, ticket, nil)) },
		"Lookup":        func() error { return failure(c.Lookup(ctx, "a")) },
		"Break":         func() error { return failure(c.Break(ctx, "a", 0)) },
		"Ping":          func() error { return c.Ping(ctx) },
		"List":          func() error { return firstError(ctx, c) },
	})
	return calls
}

// Mistakes of the caller are reported, and leave no lock behind.
func TestNilArguments(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		var none context.Context
		ticket := given(t, c, "ticket", holdfast.Options{})
		calls := verbs(none, c, ticket)
		for verb, call := range doVerbs(ctx, c, nil) {
			calls[verb+", work"] = call
		}
		lock := func() *holdfast.Lock { return acquire(t, c, "a", nil) }
		maps.Copy(calls, map[string]func() error{
			"Lock.Do, work":    func() error { return lock().Do(ctx, nil) },
			"LockSet.Do, work": func() error { return acquireAll(t, c, []string{"a", "b"}, nil).Do(ctx, nil) },
			"Lock.Do":          func() error { return lock().Do(none, nothing) },
			"LockSet.Do":       func() error { return acquireAll(t, c, []string{"a", "b"}, nil).Do(none, nothing) },
			"Open":             func() error { return failure(holdfast.Open(none, "memory:", nil)) },
			"Extend":           func() error { l := lock(); defer l.Release(); return l.Extend(none, time.Minute) },
		})
		for what, call := range calls {
			err := call()
			if !errors.Is(err, holdfast.ErrInvalid) || !regexp.MustCompile(`(ctx|work) is nil`).MatchString(err.Error()) {
				t.Errorf("%s: %v", what, err)
			}
			free(t, c, "a", "b")
		}
		release(t, adopt(t, c, ticket, nil))
		lock() // which they do not wait for
		for _, call := range doVerbs(ctx, c, nil) {
			wantErr(t, call(), holdfast.ErrInvalid)
		}
		defer func() {
			if text := fmt.Sprint(recover()); text != "holdfast: New: store is nil" {
				t.Errorf("New of a nil store panics with %q", text)
			}
		}()
		holdfast.New(nil, nil)
	})
}

// A Config that is out of bounds is reported by every verb, and by Open.
func TestInvalidConfig(t *testing.T) {
	ctx := t.Context()
	ticket := given(t, open(t, memstore.New(), nil), "a", holdfast.Options{})
	for what, config := range map[string]holdfast.Config{
		"RequestTimeout": {RequestTimeout: -1},
		"MaxOutage":      {MaxOutage: -1},
		"Backoff.Min":    {Backoff: holdfast.Backoff{Min: -1}},
		"Backoff.Max":    {Backoff: holdfast.Backoff{Max: -1}},
		"Min above Max":  {Backoff: holdfast.Backoff{Min: 2, Max: 1}},
		"TTL":            {TTL: 1},
		"Metadata":       {Metadata: map[string]string{"": ""}},
		"Holder":         {Holder: "a\nb"},
		"Prefix":         {Prefix: "a\nb"},
	} {
		calls := verbs(ctx, open(t, memstore.New(), &config), ticket)
		calls["Open"] = func() error { return failure(holdfast.Open(ctx, "memory:", &config)) }
		for verb, call := range calls {
			if err := call(); !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("%s, %s: %v", what, verb, err)
			}
		}
	}
	for _, backoff := range []holdfast.Backoff{
		{Min: time.Hour}, // above the default of Max
		{Min: time.Second, Max: time.Second},
	} {
		noErr(t, open(t, memstore.New(), &holdfast.Config{Backoff: backoff}).Ping(ctx))
	}
}

func TestPing(t *testing.T) {
	readOnly := errors.New("READONLY You can't write against a read only replica")
	cases := map[string]struct {
		op    faultstore.Op
		fault faultstore.Fault
		want  []error
		took  time.Duration
	}{
		"healthy":               {},
		"hung":                  {faultstore.Acquire, faultstore.Hang, []error{holdfast.ErrUnavailable}, 3 * time.Second},
		"refused":               {faultstore.Acquire, faultstore.Refuse, []error{holdfast.ErrUnavailable, faultstore.ErrRefused}, 0},
		"reply lost":            {faultstore.Acquire, faultstore.LoseReply, []error{holdfast.ErrUnavailable, faultstore.ErrReplyLost}, 0},
		"granted, hung":         {faultstore.Acquire, applyAndHang, []error{holdfast.ErrUnavailable}, 3 * time.Second},
		"cannot be written":     {faultstore.Acquire, fails(fmt.Errorf("%w: %w", readOnly, driver.ErrNotApplied)), []error{holdfast.ErrUnavailable, readOnly}, 0},
		"cannot serve now":      {faultstore.Acquire, fails(&driver.RetryError{Err: readOnly, After: time.Minute}), []error{holdfast.ErrUnavailable, readOnly}, 0},
		"damaged":               {faultstore.Acquire, fails(holdfast.ErrCorrupt), []error{holdfast.ErrCorrupt}, 0},
		"release hung":          {faultstore.Release, faultstore.Hang, []error{holdfast.ErrUnavailable}, 3 * time.Second},
		"release refused":       {faultstore.Release, faultstore.Refuse, []error{holdfast.ErrUnavailable, faultstore.ErrRefused}, 0},
		"release, no rights":    {faultstore.Release, fails(readOnly), []error{holdfast.ErrUnavailable, readOnly}, 0},
		"release without reply": {faultstore.Release, faultstore.LoseReply, []error{holdfast.ErrUnavailable}, 0},
	}
	for name, test := range cases {
		virtualRun(t, name, func(t *testing.T, ctx context.Context) {
			hooks := holdfast.Hooks{Event: func(_ context.Context, e holdfast.Event) {
				if e.Kind != holdfast.EventRequest {
					t.Errorf("event: %v", e.Kind)
				}
			}}
			c, store := faulty(t, &holdfast.Config{Prefix: "p:", Metadata: map[string]string{"k": "v"}, Hooks: hooks})
			if test.op != "" {
				store.Set(test.op, test.fault)
			}
			for range 3 { // None meets with what another has left.
				err := within(t, test.took, test.took, func() error { return c.Ping(ctx) })
				wantErr(t, err, test.want...)
				if (err != nil) != (test.want != nil) || errors.Is(err, holdfast.ErrHeld) {
					t.Errorf("Ping: %v", err)
				}
				time.Sleep(time.Second)
			}
			store.Set(test.op, nil)
			noErr(t, c.Ping(ctx))
			time.Sleep(13 * time.Second) // a request that hangs takes three, a TTL ten
			for rec, err := range store.Store.List(ctx, "") {
				t.Errorf("Ping has left %+v, %v", rec, err)
			}
		})
	}
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		store.Set(faultstore.Acquire, faultstore.Hang)
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		err := within(t, time.Second, time.Second, func() error { return c.Ping(short) })
		wantErr(t, err, holdfast.ErrUnavailable, context.DeadlineExceeded)
		wantErr(t, c.Ping(short), context.DeadlineExceeded)
		store.Set(faultstore.Acquire, nil)
		var group sync.WaitGroup
		for range 20 { // at once
			group.Go(func() { noErr(t, c.Ping(ctx)) })
		}
		group.Wait()
		noErr(t, c.Close())
		wantErr(t, c.Ping(ctx), holdfast.ErrClosed)
	})
}

func TestLocks(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c := open(t, store, &holdfast.Config{Prefix: "p:", Holder: "me"})
		other := open(t, store, &holdfast.Config{Prefix: "p:", Holder: "other"})
		ticket := given(t, other, "adopted", holdfast.Options{TTL: time.Hour})
		names := func(want ...string) {
			t.Helper()
			var names []string
			for _, lock := range c.Locks() {
				names = append(names, lock.Name())
				if lock.Err() != nil || lock.Token() == 0 {
					t.Errorf("%v: %v", lock, lock.Err())
				}
			}
			if !slices.Equal(names, want) {
				t.Errorf("%v, want %v", names, want)
			}
		}
		names()
		set := acquireAll(t, c, []string{"d", "b"}, nil)
		again := &holdfast.Options{Reentrant: true}
		first, second := acquire(t, c, "c", again), acquire(t, c, "c", again)
		time.Sleep(time.Minute)
		adopted := adopt(t, c, ticket, nil)
		broken := acquire(t, c, "e", nil)
		names("adopted", "b", "c", "d", "e")
		for _, lock := range c.Locks() {
			want := time.Minute
			if lock.Name() == "adopted" || lock.Name() == "e" {
				want = 0
			}
			if age := time.Since(lock.Since()); age != want {
				t.Errorf("%v is held since %v, want %v", lock, age, want)
			}
			if lock.Name() == "b" {
				release(t, lock)
			}
		}
		wantErr(t, set.Err(), holdfast.ErrReleased)
		release(t, second)
		breakLock(t, other, "e")
		<-broken.Context().Done()
		release(t, adopted)
		names("c", "d")
		release(t, c.Locks()[0])
		wantErr(t, first.Err(), holdfast.ErrReleased)
		free(t, c, "c")
		noErr(t, c.Close())
		names()
	})
}

// What is printed of locks and clients does not show the owner's secret.
func TestTextsOfLocks(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		var text logText
		spy := spyOn(memstore.New())
		c := open(t, spy, &holdfast.Config{Holder: "me", Logger: text.logger()})
		lock := acquire(t, c, "a", nil)
		set := acquireAll(t, c, []string{"c", "b"}, nil)
		if got, want := lock.String(), fmt.Sprintf(`lock "a" (token %d)`, lock.Token()); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		tokens := set.Tokens()
		if got, want := set.String(), fmt.Sprintf(`lock "b" (token %d), lock "c" (token %d)`, tokens["b"], tokens["c"]); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		text.logger().Info("texts", "lock", lock, "set", set, "client", c)
		for _, want := range []string{
			fmt.Sprintf("lock.name=a lock.token=%d lock.holder=me lock.deadline=2000-01-01T00:00:29.698Z", lock.Token()),
			`client="holdfast client \"me\" of the memory store"`,
		} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("no %s in the log:\n%s", want, &text)
			}
		}
		_, held := c.TryAcquire(ctx, "a", nil)
		shown := text.String()
		for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			for _, value := range []any{lock, []*holdfast.Lock{lock}, struct{ L, l *holdfast.Lock }{lock, lock}, set, c, held, c.Locks()} {
				shown += fmt.Sprintf(format, value)
			}
		}
		for _, req := range spy.acquired {
			if strings.Contains(shown, req.Owner) {
				t.Errorf("an owner is shown in:\n%s", shown)
			}
		}
	})
}

// A wait that is cut short ends at that moment, and says why. One deadline is for all waits of
// AcquireAll.
func TestGaveUpSaysWhy(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		other := open(t, store, &holdfast.Config{Holder: "other"})
		acquire(t, other, "a", nil)
		c := open(t, store, nil)
		shutdown := errors.New("shutting down")
		for want, cause := range map[string]error{
			"the time to wait is over": nil, "context deadline exceeded": context.DeadlineExceeded,
			"context canceled": context.Canceled, "shutting down": shutdown,
		} {
			took, end := time.Second, context.Canceled
			switch cause {
			case nil:
				took, end = 2*time.Second, context.DeadlineExceeded
			case context.DeadlineExceeded:
				took, end = time.Second-ms, context.DeadlineExceeded
			}
			for _, all := range []bool{false, true} {
				before := acquire(t, other, "A", nil)
				time.AfterFunc(500*ms, func() { release(t, before) })
				ctx, cancel := context.WithCancelCause(ctx)
				if cause != nil {
					time.AfterFunc(time.Second, func() { cancel(cause) })
				}
				if cause == context.DeadlineExceeded {
					var stop context.CancelFunc
					ctx, stop = context.WithTimeout(ctx, time.Second-ms)
					defer stop()
				}
				o := &holdfast.Options{Wait: 2 * time.Second}
				err := within(t, took, took, func() error {
					if all {
						return failure(c.AcquireAll(ctx, []string{"A", "a"}, o))
					}
					return failure(c.Acquire(ctx, "a", o))
				})
				cancel(nil)
				wantErr(t, err, holdfast.ErrHeld, end)
				if !regexp.MustCompile(`gave up after [^ ]+ \(` + want + `\): held by "other" under token `).MatchString(fmt.Sprint(err)) {
					t.Errorf("%s: %v", want, err)
				}
				if errors.Is(err, shutdown) != (cause == shutdown) {
					t.Errorf("%s: %v does not match its cause", want, err)
				}
			}
		}
	})
}

// Every hold of a store without tokens has token 0, and all verbs work.
func TestStoreWithoutTokens(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := faultstore.Wrap(memstore.New())
		store.Set(faultstore.Notice, loseNotice) // It has a token.
		store.Bend(func(v any) {
			switch v := v.(type) {
			case *driver.Guarantees:
				v.Fencing = false
			case *driver.Result:
				v.Token, v.Held.Token = 0, 0
			case *[]driver.Entry:
				for i := range *v {
					(*v)[i].Token = 0
				}
			}
		})
		c := open(t, store, nil)
		first := acquire(t, c, "a", &holdfast.Options{Detached: true})
		waiting := startWaiters(t, c, "a", nil, 3)
		release(t, adopt(t, c, handOver(t, first), nil))
		for range cap(waiting) {
			lock := <-waiting
			if lock.Token() != 0 || lock.Err() != nil {
				t.Errorf("%v: %v", lock, lock.Err())
			}
			time.Sleep(time.Minute)
			release(t, lock)
		}
		lock := acquire(t, c, "a", nil)
		breakLock(t, c, "a")
		wantErr(t, lock.Release(), holdfast.ErrLost)
	})
}

// A Client that nobody has made has an error for each verb, and no panic.
func TestZeroClient(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		var c holdfast.Client
		for verb, call := range verbs(ctx, &c, given(t, open(t, memstore.New(), nil), "a", holdfast.Options{})) {
			if err := call(); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "made by New or Open") {
				t.Errorf("%s: %v, want ErrInvalid", verb, err)
			}
		}
		noErr(t, errors.Join(c.ReleaseAll(), c.Close(), c.Close()))
		if len(c.Locks()) != 0 || c.Store() != nil {
			t.Errorf("locks %v", c.Locks())
		}
		_ = c.String()
	})
}
