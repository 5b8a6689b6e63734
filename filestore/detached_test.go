package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// TestDetachedHold: a detached hold stays when its process is killed, through a
// sweep too, and belongs to any process that knows its owner.
func TestDetachedHold(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	c := start(t, command("detach", dir, "name", "secret"))
	c.number()
	c.kill()
	s.sweepIdle(t.Context(), 0)
	refused(t, openTest(t, dir), "name")
	req := olddriver.AcquireRequest{Name: "name", Owner: "secret", TTL: time.Hour}
	outcomes, err := s.Renew(t.Context(), []olddriver.RenewRequest{{Name: "name", Owner: req.Owner, TTL: req.TTL}})
	if err != nil || outcomes[0] != olddriver.Renewed {
		t.Fatalf("Renew: %v, %v", outcomes, err)
	}
	if rec := readRecord(t, s, "name"); !rec.detached() {
		t.Errorf("the renewed hold depends on the session %s", rec.Session)
	}
	released(t, s, req)
	granted(t, s, "name", time.Hour)
}

// roleDetach takes a name for an owner, detached, and waits.
func roleDetach(args []string) error {
	s, err := newEngine(args[0], nil)
	if err != nil {
		return err
	}
	req := olddriver.AcquireRequest{Name: args[1], Owner: args[2], Holder: "holder", TTL: time.Hour, Detached: true}
	res, err := s.Acquire(context.Background(), req)
	if err != nil || !res.Granted {
		return fmt.Errorf("not granted: %w", err)
	}
	fmt.Println(res.Token)
	return awaitEOF()
}

// onHungDisk runs a test in virtual time with a store whose first grant hangs until mend is called.
func onHungDisk(t *testing.T, test func(t *testing.T, s *engine, mend func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h, mended := newFakeHost().host(), make(chan struct{})
		h.flush = func(*os.File) error { <-mended; return nil }
		s, err := openWithHost(h, t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		mend := sync.OnceFunc(func() { close(mended) })
		defer func() {
			mend()
			_ = s.Close()
		}()
		test(t, s, mend)
	})
}

// Requests return when their contexts end, and say that they may have been applied. Close waits for
// them, for 3 s at most.
func TestCallsReturnWithTheirContext(t *testing.T) {
	for _, limit := range []func(context.Context) (context.Context, context.CancelFunc){
		func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		},
		func(ctx context.Context) (context.Context, context.CancelFunc) {
			canceled, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return canceled, cancel
		},
	} {
		onHungDisk(t, func(t *testing.T, s *engine, _ func()) {
			ctx, cancel := limit(t.Context())
			defer cancel()
			began, req := time.Now(), request("name", time.Hour)
			if _, err := s.Acquire(ctx, req); err == nil || err != ctx.Err() || driver.IsNotApplied(err) || time.Since(began) != time.Second {
				t.Errorf("Acquire: %v after %v, want %v after 1s", err, time.Since(began), ctx.Err())
			}
			for _, err := range s.List(ctx, "") {
				wantError(t, err, driver.ErrNotApplied)
				wantError(t, err, ctx.Err())
			}
			began = time.Now()
			if err := s.Close(); err == nil || time.Since(began) != lateTimeout {
				t.Errorf("Close: %v after %v", err, time.Since(began))
			}
			if _, err := s.Acquire(t.Context(), req); !errors.Is(err, driver.ErrClosed) {
				t.Errorf("Acquire after Close: %v", err)
			}
		})
	}
}

// A grant that comes after the caller has gone is released if the owner was released meanwhile, and
// stays if the owner was not: the caller may have repeated the request.
func TestLateGrant(t *testing.T) {
	for _, releases := range []bool{true, false} {
		onHungDisk(t, func(t *testing.T, s *engine, mend func()) {
			req := request("name", time.Hour)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := s.Acquire(ctx, req); err != context.DeadlineExceeded {
				t.Fatalf("Acquire: %v", err)
			}
			if releases {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := s.Release(ctx, olddriver.ReleaseRequest{Name: req.Name, Owner: req.Owner}); err != context.DeadlineExceeded {
					t.Fatalf("Release: %v", err)
				}
			}
			mend()
			s.calls.running.Wait()
			if _, held, err := s.Lookup(t.Context(), "name"); held == releases || err != nil {
				t.Errorf("released before: %v; held after the late grant: %v, %v", releases, held, err)
			}
		})
	}
}
