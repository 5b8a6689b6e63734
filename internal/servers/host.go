//go:build unix

package servers

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
)

// A Host is a TB for programs that are no tests. Whoever makes one closes it,
// best by defer: then the servers end with the program, even if that panics.
// The zero value is ready to use.
type Host struct {
	mu       sync.Mutex
	cleanups []func()
	errs     []error // that Error was called with
	failed   bool
}

var _ TB = (*Host)(nil)

// A fatality is what Fatal panics with, for Do to catch.
type fatality struct{ err error }

// Do calls f and returns what it, or a server on its behalf, has called Fatal
// with. Different goroutines may call it at the same time, for different
// servers.
func (h *Host) Do(f func()) (err error) {
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case fatality:
			err = cause.err
		default:
			panic(cause)
		}
	}()
	f()
	return nil
}

// Close ends the servers and removes their folders, the last one first. Its
// error is what could not be cleaned up.
func (h *Host) Close() error {
	h.mu.Lock()
	cleanups := h.cleanups
	h.cleanups = nil
	h.mu.Unlock()
	var errs []error
	for _, cleanup := range slices.Backward(cleanups) {
		errs = append(errs, h.Do(cleanup))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return errors.Join(append(errs, h.errs...)...)
}

// Helper implements [TB]; there is nothing to be done.
func (h *Host) Helper() {}

// Logf implements [TB]. It says nothing: what a server has logged is in the
// error of one that failed.
func (h *Host) Logf(string, ...any) {}

// Error implements [TB]. Close returns what it was called with.
func (h *Host) Error(args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = true
	h.errs = append(h.errs, errorOf(args))
}

// Fatal implements [TB]: it ends what Do was called with.
func (h *Host) Fatal(args ...any) {
	h.mu.Lock()
	h.failed = true
	h.mu.Unlock()
	panic(fatality{errorOf(args)})
}

// Fatalf implements [TB]: it ends what Do was called with.
func (h *Host) Fatalf(format string, args ...any) { h.Fatal(fmt.Errorf(format, args...)) }

// errorOf keeps an error as it is, for errors.As.
func errorOf(args []any) error {
	if len(args) == 1 {
		if err, ok := args[0].(error); ok {
			return err
		}
	}
	return errors.New(fmt.Sprint(args...))
}

// Failed implements [TB].
func (h *Host) Failed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed
}

// TempDir implements [TB].
func (h *Host) TempDir() string {
	dir, err := os.MkdirTemp("", "holdfast-server-")
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			h.Error(err)
		}
	})
	return dir
}

// Cleanup implements [TB]: f is called by Close.
func (h *Host) Cleanup(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cleanups = append(h.cleanups, f)
}
