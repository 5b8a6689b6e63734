package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// hungStore opens a store whose first grant hangs until mend is called, and tells that it does.
func hungStore(t *testing.T) (s *Store, hangs <-chan struct{}, mend func()) {
	t.Helper()
	h, began, mended := newFakeHost().host(), make(chan struct{}, 10), make(chan struct{})
	h.flush = func(*os.File) error { began <- struct{}{}; <-mended; return nil }
	s, err := openWithHost(h, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, began, sync.OnceFunc(func() { close(mended) })
}

// Requests return when their contexts end, and say whether they may have been applied.
func TestCallsReturnWithTheirContext(t *testing.T) {
	for _, timeout := range []time.Duration{2 * time.Second, time.Minute} { // The other one is canceled.
		s, hangs, mend := hungStore(t)
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		if timeout == time.Minute {
			go func() { <-hangs; cancel() }()
		}
		began, req := time.Now(), request("name", time.Hour)
		if _, err := s.Acquire(ctx, req); !errors.Is(err, ctx.Err()) || driver.IsNotApplied(err) || time.Since(began) > 20*time.Second {
			t.Errorf("Acquire: %v after %v, want %v", err, time.Since(began), ctx.Err())
		}
		for _, err := range s.List(ctx, "") {
			wantError(t, err, driver.ErrNotApplied)
			wantError(t, err, ctx.Err())
		}
		cancel()
		mend()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := s.Acquire(t.Context(), req); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("Acquire after Close: %v", err)
		}
	}
}

// While the opening of the folder hangs, requests return when their contexts end, and Close after
// its 3 s.
func TestOpeningHangs(t *testing.T) {
	s, err := New(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	for i := range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, err := s.Acquire(ctx, request(fmt.Sprint("name", i), time.Hour)); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 20*time.Second {
			t.Errorf("Acquire: %v after %v", err, time.Since(began))
		}
	}
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "the disk hangs") {
		t.Errorf("Close: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	_, err = s.Lookup(t.Context(), "name")
	wantError(t, err, driver.ErrClosed)
}

// A release that was sent after an acquire whose caller has gone takes effect after it.
func TestLateGrant(t *testing.T) {
	s, hangs, mend := hungStore(t)
	defer s.Close()
	defer mend()
	req := request("name", time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-hangs; cancel() }()
	if _, err := s.Acquire(ctx, req); !errors.Is(err, context.Canceled) {
		t.Fatalf("Acquire: %v", err)
	}
	time.AfterFunc(50*time.Millisecond, mend)
	if err := release(s, req); err != nil {
		t.Errorf("Release: %v", err)
	}
	if records, err := s.Lookup(t.Context(), "name"); len(records) > 0 || err != nil {
		t.Errorf("after the late grant: %v, %v", records, err)
	}
}
