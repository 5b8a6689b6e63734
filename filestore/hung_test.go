package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

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

// A request in flight returns when its context ends, and does not say that nothing was changed. A
// release that is sent after it takes effect after it.
func TestLateGrant(t *testing.T) {
	h, hangs, mended := newFakeHost().host(), make(chan struct{}, 10), make(chan struct{})
	h.flush = func(*os.File) error { hangs <- struct{}{}; <-mended; return nil }
	s, req := openTestOn(t, h, t.TempDir()), request("name", time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-hangs; cancel() }()
	if _, err := s.Acquire(ctx, req); !errors.Is(err, context.Canceled) || driver.IsNotApplied(err) {
		t.Errorf("Acquire: %v", err)
	}
	time.AfterFunc(50*time.Millisecond, func() { close(mended) })
	released(t, s, req)
	if records, err := s.Lookup(t.Context(), "name"); len(records) > 0 || err != nil {
		t.Errorf("after the late grant: %v, %v", records, err)
	}
}
