package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
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

func TestDoValue(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		value, err := holdfast.DoValue(ctx, c, "a", nil, func(ctx context.Context) (string, error) {
			if lock := holdfast.FromContext(ctx); lock == nil || lock.Err() != nil {
				t.Errorf("the work has the lock %v", lock)
			}
			return "done", nil
		})
		if value != "done" || err != nil {
			t.Errorf("%q, %v", value, err)
		}
		failure := errors.New("half done")
		half, err := holdfast.DoValue(ctx, c, "a", nil, func(context.Context) (int, error) { return 5, failure })
		if half != 5 || err != failure {
			t.Errorf("%d, %v, want what the work has returned", half, err)
		}
		half, err = holdfast.DoValue(ctx, c, "a", nil, func(ctx context.Context) (int, error) {
			_, err := c.Break(ctx, "a", 0)
			return 5, err
		})
		wantErr(t, err, holdfast.ErrLost)
		if half != 5 {
			t.Errorf("%d, want what the work has returned", half)
		}
		free(t, c, "a")
		release(t, acquire(t, c, "b", nil))
		lock := acquire(t, c, "a", nil)
		half, err = holdfast.DoValue(ctx, c, "a", &holdfast.Options{Wait: time.Second}, func(context.Context) (int, error) {
			t.Error("work ran without the lock")
			return 5, nil
		})
		wantErr(t, err, holdfast.ErrHeld, context.DeadlineExceeded)
		if half != 0 {
			t.Errorf("%d of work that was not run", half)
		}
		release(t, lock)
	})
}

func TestTryDo(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		failure := errors.New("failure")
		ran := 0
		err := c.TryDo(ctx, "a", nil, func(ctx context.Context) error {
			ran++
			began := time.Now()
			err := c.TryDo(ctx, "a", nil, func(context.Context) error { ran++; return nil })
			wantErr(t, err, holdfast.ErrHeld)
			if took := time.Since(began); took > 0 {
				t.Errorf("TryDo waited %v for a lock that is held", took)
			}
			return failure
		})
		if err != failure || ran != 1 {
			t.Errorf("%v after %d runs", err, ran)
		}
		free(t, c, "a")
	})
}

// Mistakes of the caller are reported, and leave no lock behind.
func TestNilArguments(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		work := func(context.Context) error { t.Error("work ran"); return nil }
		names := []string{"a", "b"}
		both := func() *holdfast.LockSet {
			set, err := c.AcquireAll(ctx, names, nil)
			if err != nil {
				t.Fatal(err)
			}
			return set
		}
		var none context.Context
		for what, call := range map[string]func() error{
			"Do, work":         func() error { return c.Do(ctx, "a", nil, nil) },
			"TryDo, work":      func() error { return c.TryDo(ctx, "a", nil, nil) },
			"DoAll, work":      func() error { return c.DoAll(ctx, names, nil, nil) },
			"DoValue, work":    func() error { _, err := holdfast.DoValue[int](ctx, c, "a", nil, nil); return err },
			"Lock.Do, work":    func() error { return acquire(t, c, "a", nil).Do(ctx, nil) },
			"LockSet.Do, work": func() error { return both().Do(ctx, nil) },
			"Do, ctx":          func() error { return c.Do(none, "a", nil, work) },
			"TryDo, ctx":       func() error { return c.TryDo(none, "a", nil, work) },
			"DoAll, ctx":       func() error { return c.DoAll(none, names, nil, work) },
			"Lock.Do, ctx":     func() error { return acquire(t, c, "a", nil).Do(none, work) },
			"LockSet.Do, ctx":  func() error { return both().Do(none, work) },
			"Acquire, ctx":     func() error { _, err := c.Acquire(none, "a", nil); return err },
			"TryAcquire, ctx":  func() error { _, err := c.TryAcquire(none, "a", nil); return err },
			"AcquireAll, ctx":  func() error { _, err := c.AcquireAll(none, names, nil); return err },
			"Lookup, ctx":      func() error { _, err := c.Lookup(none, "a"); return err },
			"Break, ctx":       func() error { _, err := c.Break(none, "a", 0); return err },
			"Ping, ctx":        func() error { return c.Ping(none) },
			"Open, ctx":        func() error { _, err := holdfast.Open(none, "memory:", nil); return err },
			"List, ctx":        func() error { return firstError(c, none) },
			"Extend, ctx":      func() error { l := acquire(t, c, "a", nil); defer l.Release(); return l.Extend(none, time.Minute) },
			"Adopt, ctx":       func() error { return adoptWithout(t, c, none) },
		} {
			err := call()
			if !errors.Is(err, holdfast.ErrInvalid) || !regexp.MustCompile(`(ctx|work) is nil`).MatchString(err.Error()) {
				t.Errorf("%s: %v", what, err)
			}
			for _, name := range names {
				free(t, c, name)
			}
		}
		lock := acquire(t, c, "a", nil) // which they do not wait for
		for what, call := range map[string]func() error{
			"Do":      func() error { return c.Do(ctx, "a", nil, nil) },
			"TryDo":   func() error { return c.TryDo(ctx, "a", nil, nil) },
			"DoAll":   func() error { return c.DoAll(ctx, names, nil, nil) },
			"DoValue": func() error { _, err := holdfast.DoValue[int](ctx, c, "a", nil, nil); return err },
		} {
			if err := call(); !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("%s under a lock that is held: %v", what, err)
			}
		}
		release(t, lock)
		defer func() {
			if text := fmt.Sprint(recover()); text != "holdfast: New: store is nil" {
				t.Errorf("New of a nil store panics with %q", text)
			}
		}()
		holdfast.New(nil, nil)
	})
}

func firstError(c *holdfast.Client, ctx context.Context) error {
	for _, err := range c.List(ctx, "") {
		return err
	}
	return nil
}

func adoptWithout(t *testing.T, c *holdfast.Client, ctx context.Context) error {
	lock := acquire(t, c, "a", &holdfast.Options{Detached: true})
	ticket, err := lock.HandOver()
	if err != nil {
		t.Fatal(err)
	}
	_, adoptErr := c.Adopt(ctx, ticket, nil)
	adopted, err := c.Adopt(t.Context(), ticket, nil)
	if err != nil {
		t.Fatal(err)
	}
	release(t, adopted)
	return adoptErr
}

// A Config that is out of bounds is reported by every verb, and by Open.
func TestInvalidConfig(t *testing.T) {
	ctx := t.Context()
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
		c := open(t, memstore.New(), &config)
		_, lookup := c.Lookup(ctx, "a")
		_, try := c.TryAcquire(ctx, "a", nil)
		o, err := holdfast.Open(ctx, "memory:", &config)
		if o != nil {
			o.Close()
		}
		for _, err := range []error{lookup, try, err, c.Ping(ctx), firstError(c, ctx)} {
			if !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	for _, config := range []holdfast.Config{
		{Backoff: holdfast.Backoff{Min: time.Hour}}, // above the default of Max
		{Backoff: holdfast.Backoff{Min: time.Second, Max: time.Second}},
	} {
		if err := open(t, memstore.New(), &config).Ping(ctx); err != nil {
			t.Errorf("%+v: %v", config.Backoff, err)
		}
	}
}

// A plainStore refuses metadata and Detached.
type plainStore struct{ driver.Store }

func (s plainStore) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	if len(req.Metadata) > 0 || req.Detached {
		return driver.Result{}, driver.ErrUnsupported
	}
	return s.Store.Acquire(ctx, req)
}

// What a store refuses is reported at once.
func TestUnsupportedOptions(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, plainStore{memstore.New()}, nil)
		for _, o := range []holdfast.Options{{Metadata: map[string]string{"k": "v"}}, {Detached: true}} {
			began := time.Now()
			_, err := c.Acquire(ctx, "a", &o)
			wantErr(t, err, holdfast.ErrUnsupported)
			if took := time.Since(began); took > 0 {
				t.Errorf("%+v is refused after %v", o, took)
			}
		}
		release(t, acquire(t, c, "a", &holdfast.Options{Metadata: map[string]string{}}))
	})
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
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context) {
				c, store := faulty(t, &holdfast.Config{Prefix: "p:", Metadata: map[string]string{"k": "v"}, Hooks: requestHooks(t)})
				if test.op != "" {
					store.Set(test.op, test.fault)
				}
				began := time.Now()
				err := c.Ping(ctx)
				wantErr(t, err, test.want...)
				if (err != nil) != (test.want != nil) || errors.Is(err, holdfast.ErrHeld) {
					t.Errorf("Ping: %v", err)
				}
				if took := time.Since(began); took != test.took {
					t.Errorf("it took %v, want %v", took, test.took)
				}
				store.Set(test.op, nil)
				time.Sleep(4 * time.Second) // a request that hangs takes three
				for rec, err := range store.Store.List(ctx, "") {
					t.Errorf("Ping has left %+v, %v", rec, err)
				}
			})
		})
	}
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		store.Set(faultstore.Acquire, faultstore.Hang)
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		began := time.Now()
		wantErr(t, c.Ping(short), holdfast.ErrUnavailable, context.DeadlineExceeded)
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %v, want 1s", took)
		}
		wantErr(t, c.Ping(short), context.DeadlineExceeded)
		store.Set(faultstore.Acquire, nil)
		var group sync.WaitGroup
		for range 20 { // at once
			group.Go(func() {
				if err := c.Ping(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		wantErr(t, c.Ping(ctx), holdfast.ErrClosed)
	})
}

func fails(err error) faultstore.Fault {
	return func(context.Context, faultstore.Op, func()) error { return err }
}

// requestHooks fail the test for every event that is no request.
func requestHooks(t *testing.T) holdfast.Hooks {
	return holdfast.Hooks{
		Start: func(ctx context.Context, s holdfast.Start) context.Context {
			t.Errorf("start of %+v", s)
			return ctx
		},
		Event: func(_ context.Context, e holdfast.Event) {
			if e.Kind != holdfast.EventRequest {
				t.Errorf("event: %v", e.Kind)
			}
		},
	}
}

func TestLocks(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c := open(t, store, &holdfast.Config{Prefix: "p:", Holder: "me"})
		other := open(t, store, &holdfast.Config{Prefix: "p:", Holder: "other"})
		foreign := acquire(t, other, "adopted", &holdfast.Options{Detached: true, TTL: time.Hour})
		ticket, err := foreign.HandOver()
		if err != nil {
			t.Fatal(err)
		}
		names := func() []string {
			var names []string
			for _, lock := range c.Locks() {
				names = append(names, lock.Name())
				if lock.Err() != nil || lock.Token() == 0 {
					t.Errorf("%v: %v", lock, lock.Err())
				}
			}
			return names
		}
		if got := names(); got != nil {
			t.Errorf("before: %v", got)
		}
		set, err := c.AcquireAll(ctx, []string{"d", "b"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		again := &holdfast.Options{Reentrant: true}
		first, second := acquire(t, c, "c", again), acquire(t, c, "c", again)
		time.Sleep(time.Minute)
		adopted, err := c.Adopt(ctx, ticket, nil)
		if err != nil {
			t.Fatal(err)
		}
		broken := acquire(t, c, "e", nil)
		if got, want := names(), []string{"adopted", "b", "c", "d", "e"}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
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
		release(t, second) // the one that Locks returns first
		if _, err := other.Break(ctx, "e", 0); err != nil {
			t.Fatal(err)
		}
		<-broken.Context().Done()
		release(t, adopted)
		if got, want := names(), []string{"c", "d"}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		release(t, c.Locks()[0])
		wantErr(t, first.Err(), holdfast.ErrReleased)
		free(t, c, "c")
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if got := names(); got != nil {
			t.Errorf("after Close: %v", got)
		}
	})
}

// What is printed of locks and clients does not show the owner's secret.
func TestTextsOfLocks(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		var text logText
		owners := &ownersSeen{Store: memstore.New()}
		c := open(t, owners, &holdfast.Config{Holder: "me", Logger: text.logger(slog.LevelDebug)})
		lock := acquire(t, c, "a", nil)
		set, err := c.AcquireAll(ctx, []string{"c", "b"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := lock.String(), fmt.Sprintf(`lock "a" (token %d)`, lock.Token()); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		tokens := set.Tokens()
		if got, want := set.String(), fmt.Sprintf(`lock "b" (token %d), lock "c" (token %d)`, tokens["b"], tokens["c"]); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		text.logger(slog.LevelDebug).Info("texts", "lock", lock, "set", set, "client", c)
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
		if len(owners.seen) < 3 {
			t.Fatalf("%d owners", len(owners.seen))
		}
		for _, owner := range owners.seen {
			if strings.Contains(shown, owner) {
				t.Errorf("an owner is shown in:\n%s", shown)
			}
		}
		release(t, lock)
		if err := set.Release(); err != nil {
			t.Error(err)
		}
	})
}

// ownersSeen is a store that remembers the owners of requests.
type ownersSeen struct {
	driver.Store
	seen []string
}

func (s *ownersSeen) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	s.seen = append(s.seen, req.Owner)
	return s.Store.Acquire(ctx, req)
}

// The log says at level Debug for whom an acquisition waits, and warns, once, that a
// Client waits for itself for long.
func TestWaitingIsLogged(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		var text logText
		store := memstore.New()
		c := open(t, store, &holdfast.Config{Holder: "me", Logger: text.logger(slog.LevelDebug)})
		other := open(t, store, &holdfast.Config{Holder: "other"})
		mine, foreign := acquire(t, c, "mine", nil), acquire(t, other, "foreign", nil)
		time.Sleep(time.Second)
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				_, err := c.Acquire(ctx, "mine", &holdfast.Options{Wait: time.Minute})
				wantErr(t, err, holdfast.ErrHeld, context.DeadlineExceeded)
				if text := fmt.Sprint(err); text != `holdfast: acquire "mine": gave up after 1m0s (the time to wait is over): held by me, this very client, since 2000-01-01T00:00:00Z` {
					t.Error(text)
				}
				var held *holdfast.HeldError
				if !errors.As(err, &held) || !held.Self {
					t.Errorf("%+v", held)
				}
			})
		}
		group.Go(func() {
			_, err := c.Acquire(ctx, "foreign", &holdfast.Options{Wait: time.Minute})
			wantErr(t, err, holdfast.ErrHeld, context.DeadlineExceeded)
		})
		synctest.Wait()
		for want, n := range map[string]int{
			`level=DEBUG msg="waiting for lock" name=mine holder=me since=2000-01-01T00:00:00.000Z`:       3,
			`level=DEBUG msg="waiting for lock" name=foreign holder=other since=2000-01-01T00:00:00.000Z`: 1,
			`level=WARN`: 0,
		} {
			if got := strings.Count(text.String(), want); got != n {
				t.Errorf("%d records %s, want %d:\n%s", got, want, n, &text)
			}
		}
		group.Wait()
		release(t, mine)
		release(t, foreign)
	})
}

func TestGaveUpSaysWhy(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		lock := acquire(t, open(t, store, &holdfast.Config{Holder: "other"}), "a", nil)
		c := open(t, store, nil)
		shutdown := errors.New("shutting down")
		for want, wait := range map[string]func() (context.Context, context.CancelFunc){
			"the time to wait is over":  func() (context.Context, context.CancelFunc) { return ctx, func() {} },
			"context deadline exceeded": func() (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, time.Second) },
			"context canceled": func() (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(time.Second, cancel)
				return ctx, cancel
			},
			"shutting down": func() (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancelCause(ctx)
				time.AfterFunc(time.Second, func() { cancel(shutdown) })
				return ctx, func() { cancel(nil) }
			},
		} {
			o := &holdfast.Options{Wait: 2 * time.Second}
			for _, all := range []bool{false, true} {
				ctx, cancel := wait()
				var err error
				if all {
					_, err = c.AcquireAll(ctx, []string{"a"}, o)
				} else {
					_, err = c.Acquire(ctx, "a", o)
				}
				cancel()
				wantErr(t, err, holdfast.ErrHeld)
				if !regexp.MustCompile(`gave up after [^ ]+ \(` + want + `\): held by other, for `).MatchString(fmt.Sprint(err)) {
					t.Errorf("%s: %v", want, err)
				}
				if errors.Is(err, shutdown) != (want == "shutting down") {
					t.Errorf("%s: %v does not match its cause", want, err)
				}
			}
		}
		release(t, lock)
	})
}

// tokenless is a store without fencing tokens.
type tokenless struct{ driver.Store }

func (s *tokenless) Guarantees() driver.Guarantees {
	can := s.Store.Guarantees()
	can.Fencing = false
	return can
}

func (s *tokenless) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	res, err := s.Store.Acquire(ctx, req)
	res.Token, res.Held.Token = 0, 0
	return res, err
}

func (s *tokenless) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	entries, err := s.Store.Renew(ctx, reqs)
	for i := range entries {
		entries[i].Token = 0
	}
	return entries, err
}

func (s *tokenless) Lookup(ctx context.Context, name string) ([]driver.Record, error) {
	records, err := s.Store.Lookup(ctx, name)
	for i := range records {
		records[i].Token = 0
	}
	return records, err
}

// Every hold of a store without tokens has token 0, and all verbs work.
func TestStoreWithoutTokens(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, &tokenless{memstore.New()}, nil)
		first := acquire(t, c, "a", &holdfast.Options{Detached: true})
		waiting := startWaiters(t, c, "a", 3)
		ticket, err := first.HandOver()
		if err != nil {
			t.Fatal(err)
		}
		release(t, adopt(t, c, ticket, nil))
		for range cap(waiting) {
			lock := <-waiting
			if lock.Token() != 0 || lock.Err() != nil {
				t.Errorf("%v: %v", lock, lock.Err())
			}
			time.Sleep(time.Minute)
			release(t, lock)
		}
		lock := acquire(t, c, "a", nil)
		if _, err := c.Break(ctx, "a", 0); err != nil {
			t.Fatal(err)
		}
		wantErr(t, lock.Release(), holdfast.ErrLost)
	})
}

// A Client that nobody has made has an error for each verb, and no panic.
func TestZeroClient(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		var c holdfast.Client
		work := func(context.Context) error { t.Error("work ran"); return nil }
		verbs := map[string]func() error{
			"Acquire":       func() error { _, err := c.Acquire(ctx, "a", nil); return err },
			"TryAcquire":    func() error { _, err := c.TryAcquire(ctx, "a", nil); return err },
			"AcquireAll":    func() error { _, err := c.AcquireAll(ctx, []string{"a", "b"}, nil); return err },
			"TryAcquireAll": func() error { _, err := c.TryAcquireAll(ctx, []string{"a"}, nil); return err },
			"Do":            func() error { return c.Do(ctx, "a", nil, work) },
			"TryDo":         func() error { return c.TryDo(ctx, "a", nil, work) },
			"DoAll":         func() error { return c.DoAll(ctx, []string{"a"}, nil, work) },
			"Adopt":         func() error { _, err := c.Adopt(ctx, holdfast.Ticket("x"), nil); return err },
			"Lookup":        func() error { _, err := c.Lookup(ctx, "a"); return err },
			"Break":         func() error { _, err := c.Break(ctx, "a", 0); return err },
			"Ping":          func() error { return c.Ping(ctx) },
			"List": func() error {
				for _, err := range c.List(ctx, "") {
					return err
				}
				return nil
			},
		}
		for verb, call := range verbs {
			if err := call(); !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", verb, err)
			}
		}
		if err := errors.Join(c.ReleaseAll(), c.Close(), c.Close()); err != nil || len(c.Locks()) != 0 || c.Store() != nil {
			t.Errorf("%v, %v", err, c.Locks())
		}
		_ = c.String()
	})
}
