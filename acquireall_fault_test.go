package holdfast_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultstore"
)

// far makes every request take a while.
func far(d time.Duration) faultstore.Fault {
	return func(_ context.Context, _ faultstore.Op, apply func()) error {
		time.Sleep(d / 2)
		apply()
		time.Sleep(d / 2)
		return nil
	}
}

// A reply that is lost costs nobody a lock, of whichever name it was.
func TestAcquireAllWithALostReply(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{
		"lost": faultstore.LoseReply, "hung": applyAndHang,
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context) {
				c, store := faulty(t, nil)
				store.Once(faultstore.Acquire, fault)
				set := acquireAll(t, c, abc, nil)
				releaseAll(t, set)
				for _, name := range abc {
					free(t, c, name)
				}
			})
		})
	}
}

// A store that never answers is an error, and what it has granted all the same
// is given back.
func TestAcquireAllOfADeafStore(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		store.Set(faultstore.Acquire, faultstore.LoseReply)
		store.Set(faultstore.Renew, faultstore.LoseReply)
		began := time.Now()
		_, err := c.AcquireAll(ctx, abc, nil)
		wantErr(t, err, holdfast.ErrUnavailable)
		if took := time.Since(began); took > time.Minute {
			t.Errorf("took %v", took)
		}
		store.Set(faultstore.Acquire, nil)
		store.Set(faultstore.Renew, nil)
		time.Sleep(10 * time.Second)
		for _, name := range abc {
			free(t, c, name)
		}
	})
}

// A caller who gives up is not kept waiting, and leaves nothing behind.
func TestCancelledAcquireAll(t *testing.T) {
	for _, delay := range []time.Duration{40 * ms, 80 * ms, 180 * ms, 220 * ms, 260 * ms} {
		t.Run(delay.String(), func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context) {
				c, store := faulty(t, nil)
				other := open(t, store.Store, nil)
				lock := acquire(t, other, "b", nil)
				store.Set(faultstore.Acquire, far(100*ms))
				store.Set(faultstore.Release, far(100*ms))
				limited, cancel := context.WithTimeout(ctx, delay)
				defer cancel()
				began := time.Now()
				_, err := c.AcquireAll(limited, abc, nil)
				wantErr(t, err, context.DeadlineExceeded)
				if took := time.Since(began); took > delay+100*ms {
					t.Errorf("took %v after a cancel at %v", took, delay)
				}
				release(t, lock)
				time.Sleep(time.Second)
				for _, name := range abc {
					free(t, c, name)
				}
			})
		})
	}
}

func TestClosedWhileASetIsWaitedFor(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		other := open(t, store.Store, nil)
		acquire(t, other, "b", nil)
		failed := make(chan error)
		go func() {
			_, err := c.AcquireAll(ctx, abc, nil)
			failed <- err
		}()
		synctest.Wait()
		go c.Close()
		wantErr(t, <-failed, holdfast.ErrClosed)
		synctest.Wait()
		free(t, other, "a")
		free(t, other, "c")
	})
}
