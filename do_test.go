package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memstore"
)

var errWork = errors.New("work failed")

func nothing(context.Context) error { return nil }

// Each way to run work under a lock gives it the lock, returns its error as it is, and frees the
// lock, also if the work panics. Close does not wait for work that has panicked.
func TestDo(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context, c *holdfast.Client, work func(context.Context) error) error{
		"Do": func(ctx context.Context, c *holdfast.Client, work func(context.Context) error) error {
			return c.Do(ctx, "a", nil, work)
		},
		"TryDo": func(ctx context.Context, c *holdfast.Client, work func(context.Context) error) error {
			return c.TryDo(ctx, "a", nil, work)
		},
		"Lock.Do": func(ctx context.Context, c *holdfast.Client, work func(context.Context) error) error {
			lock, err := c.Acquire(ctx, "a", nil)
			if err != nil {
				return err
			}
			return lock.Do(ctx, work)
		},
	} {
		virtualRun(t, name, func(t *testing.T, ctx context.Context) {
			c := open(t, memstore.New(), nil)
			for _, result := range []error{nil, errWork} {
				err := do(ctx, c, func(ctx context.Context) error {
					if lock := holdfast.FromContext(ctx); lock == nil || lock.Name() != "a" || lock.Err() != nil {
						t.Errorf("lock from context: %v", lock)
					}
					wantErr(t, within(t, 0, 0, func() error { return c.TryDo(ctx, "a", nil, nothing) }), holdfast.ErrHeld)
					return result
				})
				if err != result {
					t.Errorf("%v, want the error of the work as it is", err)
				}
				free(t, c, "a")
			}
			if holdfast.FromContext(ctx) != nil {
				t.Error("a lock outside of Do")
			}
			func() {
				defer func() {
					if r := recover(); r != "boom" {
						t.Errorf("recovered %v", r)
					}
				}()
				_ = do(ctx, c, func(context.Context) error { panic("boom") })
			}()
			free(t, c, "a")
			noErr(t, within(t, 0, 0, c.Close))
		})
	}
}

func TestDoValue(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		ran := 0
		do := func(o *holdfast.Options, work func(context.Context) error) (int, error) {
			return holdfast.DoValue(ctx, c, "a", o, func(ctx context.Context) (int, error) {
				ran++
				return 5, work(ctx)
			})
		}
		if value, err := do(nil, nothing); value != 5 || err != nil {
			t.Errorf("%d, %v", value, err)
		}
		if value, err := do(nil, func(context.Context) error { return errWork }); value != 5 || err != errWork {
			t.Errorf("%d, %v, want what the work has returned", value, err)
		}
		value, err := do(nil, func(ctx context.Context) error { return failure(c.Break(ctx, "a", 0)) })
		if wantErr(t, err, holdfast.ErrLost); value != 5 {
			t.Errorf("%d, want what the work has returned", value)
		}
		lock := acquire(t, c, "a", nil)
		value, err = do(&holdfast.Options{Wait: time.Second}, nothing)
		if wantErr(t, err, holdfast.ErrHeld, context.DeadlineExceeded); value != 0 || ran != 3 {
			t.Errorf("%d of work that was not run, %d runs", value, ran)
		}
		release(t, lock)
	})
}

// The Lock's own context does not end with the ctx of Acquire, and carries its values.
func TestLockContextOutlivesTheAcquire(t *testing.T) {
	type key struct{}
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		limited, cancel := context.WithCancel(context.WithValue(ctx, key{}, "value"))
		lock, err := c.Acquire(limited, "a", nil)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		noErr(t, lock.Context().Err())
		if lock.Context().Value(key{}) != "value" {
			t.Error("the value is gone")
		}
		release(t, lock) // works though every ctx has ended
		free(t, c, "a")
	})
}

// An endOfHold is a way in which a hold ends before its work.
type endOfHold struct {
	end  func(ctx context.Context, c *holdfast.Client, lock *holdfast.Lock)
	want error
}

var endsOfHolds = map[string]endOfHold{
	"released": {func(_ context.Context, _ *holdfast.Client, lock *holdfast.Lock) { _ = lock.Release() }, holdfast.ErrReleased},
	"handed over": {func(_ context.Context, _ *holdfast.Client, lock *holdfast.Lock) {
		_, _ = lock.HandOver()
	}, holdfast.ErrHandedOver},
	"broken": {func(ctx context.Context, c *holdfast.Client, _ *holdfast.Lock) {
		_, _ = c.Break(ctx, "a", 0)
	}, holdfast.ErrTaken},
	"expired": {func(context.Context, *holdfast.Client, *holdfast.Lock) { time.Sleep(10 * time.Second) }, holdfast.ErrExpired},
	"MaxHold": {func(context.Context, *holdfast.Client, *holdfast.Lock) { time.Sleep(9 * time.Second) }, holdfast.ErrMaxHold},
}

// ofEnd returns the options of a hold that ends in this way.
func (e endOfHold) options() *holdfast.Options {
	o := &holdfast.Options{Detached: true, NoRenew: true, TTL: 10 * time.Second}
	if e.want == holdfast.ErrMaxHold {
		o.MaxHold = 8 * time.Second
	}
	return o
}

// Do does not run work under a lock that is over, in whatever way, and says why.
func TestDoUnderALockThatIsOver(t *testing.T) {
	endings := map[string]endOfHold{
		"ReleaseAll": {func(_ context.Context, c *holdfast.Client, _ *holdfast.Lock) { _ = c.ReleaseAll() }, holdfast.ErrReleased},
		"closed":     {func(_ context.Context, c *holdfast.Client, _ *holdfast.Lock) { _ = c.Close() }, holdfast.ErrClosed},
		"already done": {func(ctx context.Context, _ *holdfast.Client, lock *holdfast.Lock) {
			_ = lock.Do(ctx, nothing)
		}, holdfast.ErrReleased},
	}
	for name, e := range endsOfHolds {
		endings[name] = e
	}
	for name, e := range endings {
		virtualRun(t, name, func(t *testing.T, ctx context.Context) {
			c := open(t, memstore.New(), nil)
			lock := acquire(t, c, "a", e.options())
			e.end(ctx, c, lock)
			err := lock.Do(ctx, func(context.Context) error {
				t.Error("the work was run")
				return nil
			})
			wantErr(t, err, e.want)
		})
	}
}

// The context of work ends with its lock, whatever ended that, and Do reports it in one line,
// beside the error of the work.
func TestDoReportsWhatEndedIt(t *testing.T) {
	for name, e := range endsOfHolds {
		virtualRun(t, name, func(t *testing.T, ctx context.Context) {
			c := open(t, memstore.New(), nil)
			for _, result := range []error{nil, errWork} {
				err := c.Do(ctx, "a", e.options(), func(ctx context.Context) error {
					e.end(ctx, c, holdfast.FromContext(ctx))
					synctest.Wait()
					wantErr(t, context.Cause(ctx), e.want)
					return result
				})
				wantErr(t, err, e.want)
				if text := err.Error(); !strings.Contains(text, `"a"`) || strings.Contains(text, "\n") {
					t.Errorf("%q: the error does not name the lock, or has two lines", text)
				}
				if result != nil {
					wantErr(t, err, result)
				}
				time.Sleep(time.Minute)
			}
		})
	}
}

// A second Do is refused while work runs under the lock, and does not end it, nor is one of a set
// any more in the way of the other locks of the set.
func TestDoTwiceAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		set := acquireAll(t, c, []string{"a", "b"}, nil)
		other, lock := c.Locks()[0], c.Locks()[1]
		err := lock.Do(ctx, func(ctx context.Context) error {
			wantErr(t, lock.Do(ctx, nothing), holdfast.ErrInvalid)
			wantErr(t, set.Do(ctx, nothing), holdfast.ErrInvalid)
			return errors.Join(ctx.Err(), other.Do(ctx, nothing))
		})
		noErr(t, err)
		free(t, c, "a", "b")
	})
}
