package storetest_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/httplock"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/once"
	"github.com/holdfast-go/holdfast/ratelimit"
)

// unfit are defaults of a Client under which a recipe could not keep its
// promise, each alone.
var unfit = map[string]holdfast.Options{
	"Reentrant":   {Reentrant: true},
	"NoRenew":     {NoRenew: true},
	"MinHold":     {MinHold: time.Hour},
	"MaxHold":     {MaxHold: 10 * time.Second},
	"Wait":        {Wait: time.Millisecond},
	"MaxAttempts": {MaxAttempts: 1},
	"Detached":    {Detached: true},
}

// A strict store fails the test if a request shows one of the defaults above.
type strict struct {
	driver.Notifier
	t *testing.T
}

func (s strict) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	if req.Detached {
		s.t.Errorf("%q is acquired detached", req.Name)
	}
	return s.Notifier.Acquire(ctx, req)
}

// underUnfitDefaults runs a test with two clients of one store for each of the
// defaults.
func underUnfitDefaults(t *testing.T, test func(t *testing.T, a, b *holdfast.Client)) {
	for name, options := range unfit {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := faultstore.Wrap(strict{memstore.New(), t})
				defer store.Close()
				// Requests take their time, so that calls of one client overlap.
				slow := func(_ context.Context, _ faultstore.Op, apply func()) error {
					time.Sleep(time.Millisecond)
					apply()
					return nil
				}
				store.Set(faultstore.Acquire, slow)
				store.Set(faultstore.Release, slow)
				a := holdfast.New(store, &holdfast.Config{Options: options})
				defer a.Close()
				b := holdfast.New(store, &holdfast.Config{Options: options})
				defer b.Close()
				test(t, a, b)
			})
		})
	}
}

// soon is more than some requests take, and less than any pause.
const soon = 20 * time.Millisecond

func TestElectionUnderUnfitDefaults(t *testing.T) {
	underUnfitDefaults(t, func(t *testing.T, a, b *holdfast.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		var leaders, terms atomic.Int32
		var group sync.WaitGroup
		var candidates []*election.Election
		for _, locks := range []*holdfast.Client{a, a, b} {
			e := election.New(locks, "office", &election.Options{ResignDelay: time.Hour})
			candidates = append(candidates, e)
			group.Go(func() {
				_ = e.Run(ctx, func(ctx context.Context, _ election.Term) error {
					terms.Add(1)
					if n := leaders.Add(1); n > 1 {
						t.Errorf("%d lead at once", n)
					}
					<-ctx.Done()
					leaders.Add(-1)
					return nil
				})
			})
			time.Sleep(soon)
		}
		for want := range int32(3) {
			time.Sleep(5 * time.Minute)
			if n := terms.Load(); n != want+1 || leaders.Load() != 1 {
				t.Errorf("%d terms, %d leaders; want %d and 1", n, leaders.Load(), want+1)
			}
			for _, e := range candidates {
				if _, leads := e.Leading(); leads {
					if err := e.Resign(ctx); err != nil {
						t.Error(err)
					}
					break
				}
			}
			time.Sleep(soon)
			if n := terms.Load(); want < 2 && n != want+2 {
				t.Errorf("%d terms %v after the resignation of the leader, want %d", n, soon, want+2)
			}
		}
		cancel()
		group.Wait()
	})
}

func TestOnceUnderUnfitDefaults(t *testing.T) {
	underUnfitDefaults(t, func(t *testing.T, a, b *holdfast.Client) {
		ctx := t.Context()
		ours := errors.New("disk full")
		var group sync.WaitGroup
		group.Go(func() {
			_, err := once.Do(ctx, a, "job", nil, func(ctx context.Context) error {
				time.Sleep(5 * time.Minute)
				if ctx.Err() != nil {
					t.Errorf("the run was cut short: %v", context.Cause(ctx))
				}
				return ours
			})
			if err != ours {
				t.Errorf("the first run: %v", err)
			}
		})
		time.Sleep(soon)
		for _, locks := range []*holdfast.Client{a, b} {
			result, err := once.Do(ctx, locks, "job", nil, func(context.Context) error { return nil })
			if result.Verdict != once.Busy || err != nil {
				t.Errorf("beside the first run: %v, %v", result, err)
			}
		}
		began := time.Now()
		result, err := once.Do(ctx, b, "job", &once.Options{Wait: time.Hour}, func(context.Context) error { return nil })
		if took := time.Since(began); result.Verdict != once.Ran || err != nil || took > 5*time.Minute {
			t.Errorf("who waits: %v, %v after %v", result, err, took)
		}
		group.Wait()
		for range 2 {
			result, err := once.Do(ctx, a, "job", nil, func(context.Context) error { return nil })
			if result.Verdict != once.Done || err != nil {
				t.Errorf("after a success: %v, %v", result, err)
			}
			time.Sleep(50 * time.Minute / 2)
		}
		time.Sleep(11 * time.Minute)
		result, err = once.Do(ctx, a, "job", nil, func(context.Context) error { return nil })
		if result.Verdict != once.Ran || err != nil {
			t.Errorf("after an hour: %v, %v", result, err)
		}
	})
}

func TestHTTPLockUnderUnfitDefaults(t *testing.T) {
	underUnfitDefaults(t, func(t *testing.T, a, b *holdfast.Client) {
		serve := func(locks *holdfast.Client, work time.Duration) int {
			answer := httptest.NewRecorder()
			key := func(*http.Request) string { return "key" }
			o := &httplock.Options{Failed: func(_ *http.Request, err error) { t.Errorf("Failed: %v", err) }}
			httplock.Middleware(locks, key, o)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				time.Sleep(work)
				if r.Context().Err() != nil {
					t.Errorf("the request was cut short: %v", context.Cause(r.Context()))
				}
			})).ServeHTTP(answer, httptest.NewRequest("GET", "/", nil))
			return answer.Code
		}
		var group sync.WaitGroup
		group.Go(func() {
			if code := serve(a, 5*time.Minute); code != http.StatusOK {
				t.Errorf("the first request: %d", code)
			}
		})
		time.Sleep(soon)
		for _, locks := range []*holdfast.Client{a, b} {
			if code := serve(locks, 0); code != http.StatusConflict {
				t.Errorf("beside the first request: %d", code)
			}
		}
		group.Wait()
		if code := serve(b, 0); code != http.StatusOK {
			t.Errorf("after the first request: %d", code)
		}
	})
}

func TestRateLimitUnderUnfitDefaults(t *testing.T) {
	underUnfitDefaults(t, func(t *testing.T, a, b *holdfast.Client) {
		for range 3 { // windows
			var passed atomic.Int32
			var group sync.WaitGroup
			for i, locks := range []*holdfast.Client{a, a, b} {
				group.Go(func() {
					time.Sleep(time.Duration(i) * 1500 * time.Microsecond) // the second comes while the first releases
					err := ratelimit.New(locks, 1, time.Minute).Take(t.Context(), "key")
					if err == nil {
						passed.Add(1)
					} else if !errors.Is(err, ratelimit.ErrLimited) {
						t.Error(err)
					}
				})
			}
			group.Wait()
			if n := passed.Load(); n != 1 {
				t.Errorf("%d calls passed, want 1", n)
			}
			time.Sleep(62 * time.Second)
		}
	})
}
