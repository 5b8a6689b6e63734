package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memstore"
)

var errWork = errors.New("work failed")

func TestDo(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		err := c.Do(ctx, "a", nil, func(ctx context.Context) error {
			lock := holdfast.FromContext(ctx)
			if lock == nil || lock.Name() != "a" || lock.Err() != nil {
				t.Errorf("lock from context: %v", lock)
			}
			_, err := c.TryAcquire(ctx, "a", nil)
			wantErr(t, err, holdfast.ErrHeld)
			return errWork
		})
		if err != errWork {
			t.Errorf("Do returned %v, want the error of the work as it is", err)
		}
		free(t, c, "a")
		if err := c.Do(ctx, "a", nil, func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		if holdfast.FromContext(ctx) != nil {
			t.Error("a lock outside of Do")
		}
	})
}

func TestDoReleasesAfterAPanic(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		func() {
			defer func() {
				if r := recover(); r != "boom" {
					t.Errorf("recovered %v", r)
				}
			}()
			_ = c.Do(ctx, "a", nil, func(context.Context) error { panic("boom") })
		}()
		free(t, c, "a")
	})
}

func TestDoEndsTheWorkWhenTheLockIsLost(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, other := open(t, store, nil), open(t, store, nil)
		for _, result := range []error{nil, errWork} {
			err := c.Do(ctx, "a", nil, func(ctx context.Context) error {
				if _, err := other.Break(ctx, "a", 0); err != nil {
					t.Error(err)
				}
				<-ctx.Done()
				wantErr(t, context.Cause(ctx), holdfast.ErrLost)
				return result
			})
			wantErr(t, err, holdfast.ErrLost, holdfast.ErrTaken)
			if result != nil {
				wantErr(t, err, result)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error of two lines: %v", err)
			}
		}
	})
}

func TestDoEndsTheWorkWithTheCaller(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		err := c.Do(limited, "a", nil, func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		wantErr(t, err, context.DeadlineExceeded)
		if errors.Is(err, holdfast.ErrLost) {
			t.Errorf("reported as lost: %v", err)
		}
		free(t, c, "a")
	})
}

// The Lock's own context does not end with the ctx of Acquire, and carries its
// values.
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
		if err := lock.Context().Err(); err != nil {
			t.Errorf("ended with the ctx of Acquire: %v", err)
		}
		if lock.Context().Value(key{}) != "value" {
			t.Error("the value is gone")
		}
		release(t, lock) // works though every ctx has ended
		free(t, c, "a")
	})
}

// Work under a lock that is there already has the lock in its context, and is
// told at once if it is lost; the lock is free afterwards.
func TestDoUnderAnAcquiredLock(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		lock := acquire(t, c, "a", nil)
		if err := lock.Do(ctx, func(ctx context.Context) error {
			if holdfast.FromContext(ctx) != lock || lock.Err() != nil {
				t.Error("another lock, or none")
			}
			return errWork
		}); err != errWork {
			t.Errorf("Do returned %v, want the error of the work as it is", err)
		}
		free(t, c, "a")

		lost := acquire(t, c, "a", nil)
		if _, err := c.Break(ctx, "a", 0); err != nil {
			t.Fatal(err)
		}
		wantErr(t, lost.Do(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			wantErr(t, context.Cause(ctx), holdfast.ErrLost)
			return nil
		}), holdfast.ErrLost)
	})
}
