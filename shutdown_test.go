package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/faultstore"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memstore"
)

// Do does not run work under a lock that is over, in whatever way, and says why.
func TestDoUnderALockThatIsOver(t *testing.T) {
	endings := map[string]struct {
		end  func(t *testing.T, c *holdfast.Client, lock *holdfast.Lock)
		want error
	}{
		"released":     {func(t *testing.T, _ *holdfast.Client, lock *holdfast.Lock) { release(t, lock) }, holdfast.ErrReleased},
		"ReleaseAll":   {func(_ *testing.T, c *holdfast.Client, _ *holdfast.Lock) { _ = c.ReleaseAll() }, holdfast.ErrReleased},
		"closed":       {func(_ *testing.T, c *holdfast.Client, _ *holdfast.Lock) { _ = c.Close() }, holdfast.ErrClosed},
		"broken":       {func(t *testing.T, c *holdfast.Client, _ *holdfast.Lock) { _, _ = c.Break(t.Context(), "a", 0) }, holdfast.ErrTaken},
		"expired":      {func(*testing.T, *holdfast.Client, *holdfast.Lock) { time.Sleep(time.Minute) }, holdfast.ErrExpired},
		"handed over":  {func(_ *testing.T, _ *holdfast.Client, lock *holdfast.Lock) { _, _ = lock.HandOver() }, holdfast.ErrHandedOver},
		"already done": {func(t *testing.T, _ *holdfast.Client, lock *holdfast.Lock) { _ = lock.Do(t.Context(), nothing) }, holdfast.ErrReleased},
	}
	for name, e := range endings {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context) {
				c := open(t, memstore.New(), nil)
				lock := acquire(t, c, "a", &holdfast.Options{NoRenew: true, Detached: true})
				e.end(t, c, lock)
				err := lock.Do(ctx, func(context.Context) error {
					t.Error("the work was run")
					return nil
				})
				wantErr(t, err, e.want)
			})
		})
	}
}

func nothing(context.Context) error { return nil }

// A second Do is refused while work runs under the lock, and does not end it.
func TestDoTwiceAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		lock := acquire(t, c, "a", nil)
		err := lock.Do(ctx, func(ctx context.Context) error {
			wantErr(t, lock.Do(ctx, nothing), holdfast.ErrInvalid)
			return ctx.Err()
		})
		if err != nil {
			t.Errorf("the first Do: %v", err)
		}
		free(t, c, "a")
	})
}

// Do reports that its lock ended before the work had returned, whatever ended it.
func TestDoReportsWhatEndedIt(t *testing.T) {
	endings := map[string]struct {
		end  func(ctx context.Context, c *holdfast.Client)
		want error
	}{
		"released by the work": {func(ctx context.Context, _ *holdfast.Client) { _ = holdfast.FromContext(ctx).Release() }, holdfast.ErrReleased},
		"handed over":          {func(ctx context.Context, _ *holdfast.Client) { _, _ = holdfast.FromContext(ctx).HandOver() }, holdfast.ErrHandedOver},
		"broken":               {func(ctx context.Context, c *holdfast.Client) { _, _ = c.Break(ctx, "a", 0) }, holdfast.ErrTaken},
		"expired":              {func(context.Context, *holdfast.Client) { time.Sleep(time.Minute) }, holdfast.ErrExpired},
		"MaxHold":              {func(context.Context, *holdfast.Client) { time.Sleep(9 * time.Second) }, holdfast.ErrMaxHold},
	}
	for name, e := range endings {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context) {
				c := open(t, memstore.New(), nil)
				o := &holdfast.Options{Detached: true, NoRenew: true, TTL: 10 * time.Second}
				if name == "MaxHold" {
					o.MaxHold = 8 * time.Second
				}
				failed := errors.New("the work failed")
				for _, result := range []error{nil, failed} {
					err := c.Do(ctx, "a", o, func(ctx context.Context) error {
						e.end(ctx, c)
						return result
					})
					wantErr(t, err, e.want)
					if !strings.Contains(err.Error(), `"a"`) {
						t.Errorf("%v: the error does not name the lock", err)
					}
					if result != nil {
						wantErr(t, err, result)
					}
					time.Sleep(time.Minute)
				}
			})
		})
	}
}

// Close and ReleaseAll release other locks at once, wait for the work under a lock
// until the lock's deadline and no longer, and renew nothing meanwhile.
func TestCloseWaitsForWorkUntilTheDeadline(t *testing.T) {
	verbs := map[string]func(*holdfast.Client) error{
		"Close":      (*holdfast.Client).Close,
		"ReleaseAll": (*holdfast.Client).ReleaseAll,
	}
	for name, end := range verbs {
		for _, length := range []time.Duration{5 * time.Second, time.Hour} {
			t.Run(name+"/"+length.String(), func(t *testing.T) {
				virtual(t, func(t *testing.T, ctx context.Context) {
					store := memstore.New()
					c, other := open(t, store, nil), open(t, store, nil)
					acquire(t, c, "idle", nil)
					result := make(chan error, 1)
					go func() {
						result <- c.DoAll(ctx, []string{"a", "b"}, nil, func(context.Context) error {
							time.Sleep(length) // without regard to its context
							return nil
						})
					}()
					synctest.Wait()
					began := time.Now()
					ended := make(chan time.Duration, 1)
					go func() {
						if err := end(c); err != nil {
							t.Errorf("%s: %v", name, err)
						}
						ended <- time.Since(began)
					}()
					synctest.Wait()
					release(t, acquire(t, other, "idle", nil))
					if waited := time.Since(began); waited > 0 {
						t.Errorf("a lock without work was free after %v", waited)
					}
					release(t, acquire(t, other, "a", nil))
					want := min(length, 30*time.Second-302*ms)
					if free := time.Since(began); free < want || free > want+ms {
						t.Errorf("the lock was free after %v, want %v", free, want)
					}
					if took := <-ended; took < want || took > want+ms {
						t.Errorf("%s took %v, want %v", name, took, want)
					}
					wantErr(t, <-result, holdfast.ErrReleased)
				})
			})
		}
	}
}

// Work that calls Close itself is let go at the deadline; it does not wait for ever.
func TestCloseInsideOfWork(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		began := time.Now()
		err := c.Do(ctx, "a", nil, func(context.Context) error { return c.Close() })
		wantErr(t, err, holdfast.ErrReleased, holdfast.ErrClosed)
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// Work that panics is over: Close does not wait for it.
func TestCloseAfterAPanicOfWork(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		func() {
			defer func() { _ = recover() }()
			_ = c.Do(ctx, "a", nil, func(context.Context) error { panic("work") })
		}()
		began := time.Now()
		if err := c.Close(); err != nil || time.Since(began) > 0 {
			t.Errorf("Close: %v after %v", err, time.Since(began))
		}
	})
}

// Do reports that its lock was broken and taken by another though the first request
// of its release was certainly not carried out; Release alike.
func TestRefusedReleaseOfALostLock(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		other := open(t, store.Store, nil)
		err := c.Do(ctx, "a", nil, func(context.Context) error {
			if _, err := other.Break(ctx, "a", 0); err != nil {
				t.Error(err)
			}
			release(t, acquire(t, other, "a", nil))
			store.Once(faultstore.Release, faultstore.Refuse)
			return nil
		})
		wantErr(t, err, holdfast.ErrLost)
	})
}

// A release is bounded by the request timeout, whatever the pauses between attempts.
func TestReleaseWithALongBackoff(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, &holdfast.Config{Backoff: holdfast.Backoff{Min: time.Minute, Max: time.Minute}})
		lock := acquire(t, c, "a", nil)
		store.Once(faultstore.Release, faultstore.Refuse)
		began := time.Now()
		release(t, lock)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("Release took %v", took)
		}
	})
}
