package holdfast_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// The name stays taken for the given time, counted from the call, also if the answer is lost.
func TestReleaseKeep(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{"plain": nil, "lost reply": faultstore.LoseReply} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			store := faultstore.Wrap(memstore.New())
			lock := acquire(t, open(t, store, nil), "name", nil)
			time.Sleep(2 * time.Second)
			if fault != nil {
				store.Once(faultstore.Release, fault)
			}
			began := time.Now()
			if err := lock.ReleaseKeep(5 * time.Second); err != nil {
				t.Error(err)
			}
			if err := lock.Err(); err != holdfast.ErrReleased {
				t.Errorf("Err: %v", err)
			}
			acquire(t, open(t, store, nil), "name", nil)
			if kept := time.Since(began); kept < 5*time.Second || kept > 6*time.Second {
				t.Errorf("%s: kept for %v, want 5s", name, kept)
			}
		})
	}
}

// The name is kept also after MaxHold has ended the hold.
func TestKeepOutlastsMaxHold(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		lock := acquire(t, c, "a", &holdfast.Options{MaxHold: time.Minute})
		<-lock.Context().Done()
		wantErr(t, lock.ReleaseKeep(time.Hour), holdfast.ErrMaxHold)
		time.Sleep(time.Hour - time.Second)
		_, err := c.TryAcquire(ctx, "a", nil)
		wantErr(t, err, holdfast.ErrHeld)
		time.Sleep(2 * time.Second)
		free(t, c, "a")
	})
}

// TestReleaseKeepRefuses what it cannot keep, and never says that a name is kept
// which is free.
func TestReleaseKeepRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), memstore.New()
		defer store.Close()
		locks := holdfast.New(store, nil)
		defer locks.Close()
		lock, err := locks.Acquire(ctx, "name", &holdfast.Options{Reentrant: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range []time.Duration{-1, 0, driver.MinTTL - 1, driver.MaxTTL + 1} {
			if err := lock.ReleaseKeep(d); !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("to keep it for %v: %v", d, err)
			}
		}
		second, err := locks.Acquire(ctx, "name", &holdfast.Options{Reentrant: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.ReleaseKeep(time.Minute); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("with another handle: %v", err)
		}
		second.Release()
		if err := lock.Err(); err != nil {
			t.Fatalf("a refusal has ended the lock: %v", err)
		}
		if err := locks.ReleaseAll(); err != nil {
			t.Fatal(err)
		}
		if err := lock.ReleaseKeep(time.Minute); err != holdfast.ErrReleased {
			t.Errorf("after ReleaseAll: %v", err)
		}
		if lock, err = locks.TryAcquire(ctx, "name", nil); err != nil {
			t.Fatalf("the name is kept though an error said that it is not: %v", err)
		}
		if _, err := locks.Break(ctx, "name"); err != nil {
			t.Fatal(err)
		}
		if err := lock.ReleaseKeep(time.Minute); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("after Break: %v", err)
		}
	})
}

// A keep is not confirmed if the hold has ended before a release was applied: the first request is
// lost, and the lease ends before the second.
func TestKeepAfterTheEnd(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		memory := memstore.New()
		store := faultstore.Wrap(memory)
		c, other := open(t, store, nil), open(t, memory, nil)
		lock := acquire(t, c, "name", nil)
		store.Set(faultstore.Renew, faultstore.Hang)
		time.Sleep(28 * time.Second)
		store.Once(faultstore.Release, faultstore.Hang)
		wantErr(t, lock.ReleaseKeep(time.Hour), holdfast.ErrLost, holdfast.ErrTaken)
		release(t, acquire(t, other, "name", nil))
	})
}

// A keep whose answer came late, and that is over by then, was kept.
func TestKeepIsOver(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := faultstore.Wrap(memstore.New())
		c := open(t, store, nil)
		lock := acquire(t, c, "name", nil)
		store.Once(faultstore.Release, func(_ context.Context, _ faultstore.Op, apply func()) error {
			apply()
			time.Sleep(time.Second)
			return faultstore.ErrReplyLost
		})
		if err := lock.ReleaseKeep(time.Second / 2); err != nil {
			t.Error(err)
		}
	})
}

// Nor does one that comes, after an outage, before the Release that keeps the name.
func TestLateNoticeAfterAnOutage(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		mem := memstore.New()
		store := &cutOff{Store: mem, up: make(chan struct{})}
		close(store.up)
		a, b, other := open(t, mem, nil), open(t, store, nil), open(t, mem, nil)
		first := acquire(t, a, "a", nil)
		got := make(chan *holdfast.Lock, 1)
		go func() {
			lock := acquire(t, b, "a", &holdfast.Options{TTL: 30 * time.Second})
			store.set(true)
			got <- lock
		}()
		time.Sleep(time.Second)
		release(t, first)
		lock := <-got
		if err := lock.ReleaseKeep(20 * time.Second); !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("Release in an outage: %v", err)
		}
		time.Sleep(2 * time.Second)
		store.set(false)
		time.Sleep(time.Second)
		if got, err := other.TryAcquire(ctx, "a", nil); err == nil {
			t.Error("the name is free before its time is over")
			release(t, got)
		}
	})
}

// That is so of a lock which was passed on, too.
func TestLateNoticeAfterPassOn(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		mem := memstore.New()
		store := &cutOff{Store: mem, up: make(chan struct{})}
		close(store.up)
		a, b, other := open(t, mem, nil), open(t, store, nil), open(t, mem, nil)
		o := &holdfast.Options{TTL: 30 * time.Second}
		held := acquire(t, a, "a", nil)
		got := make(chan *holdfast.Lock, 3)
		n := 0
		for range 3 {
			go func() {
				l := acquire(t, b, "a", o)
				n++
				if n == 2 {
					store.set(true)
				}
				got <- l
			}()
			synctest.Wait()
		}
		got2 := make(chan *holdfast.Lock, 1)
		go func() { got2 <- acquire(t, a, "a", nil) }()
		time.Sleep(10 * ms)
		release(t, held)
		b1 := <-got
		time.Sleep(10 * ms)
		release(t, b1)
		a2 := <-got2
		time.Sleep(time.Second)
		release(t, a2)
		b2 := <-got
		release(t, b2)
		b3 := <-got
		if b3.Token() != b2.Token()+1 {
			t.Errorf("tokens %d and %d: the lock was not passed on", b2.Token(), b3.Token())
		}
		if err := b3.ReleaseKeep(20 * time.Second); !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("ReleaseKeep in an outage: %v", err)
		}
		time.Sleep(2 * time.Second)
		store.set(false)
		time.Sleep(time.Second)
		if got, err := other.TryAcquire(ctx, "a", nil); err == nil {
			t.Error("the name is free before its time is over")
			release(t, got)
		}
	})
}

// A cutOff store refuses releases while it is down. Of a grant it sends an Ask notice at once, and
// the Granted notice when it is up.
type cutOff struct {
	driver.Store
	mu sync.Mutex
	up chan struct{}
}

func (s *cutOff) state() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up
}

func (s *cutOff) set(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if down {
		s.up = make(chan struct{})
	} else {
		close(s.up)
	}
}

func (s *cutOff) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	select {
	case <-s.state():
	default:
		return false, errors.New("no network")
	}
	return s.Store.Release(ctx, req)
}

func (s *cutOff) Notify(f func(driver.Notice)) func() {
	var late sync.WaitGroup
	stop := s.Store.(driver.Notifier).Notify(func(n driver.Notice) {
		if n.Kind == driver.Granted {
			f(driver.Notice{Kind: driver.Ask, Name: n.Name, Owner: n.Owner})
			late.Go(func() {
				time.Sleep(ms)
				<-s.state()
				f(n)
			})
			return
		}
		f(n)
	})
	return func() {
		stop()
		late.Wait()
	}
}
