//go:build unix

package servers

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
)

// A Host is a TB for programs that are no tests. Its creator must close it, best by defer:
// then the servers end with the program, even if that panics. The zero value is ready to
// use.
type Host struct {
	mu       sync.Mutex
	cleanups []func()
	errs     []error // the arguments of Error
	failed   bool
}

var _ TB = (*Host)(nil)

// A fatalPanic is the value with which Fatal panics. Do recovers it.
type fatalPanic struct{ err error }

// Do calls f and returns the error with which f, or a server on its behalf, has called
// Fatal. Different goroutines may call it at the same time, for different servers.
func (h *Host) Do(f func()) (err error) {
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case fatalPanic:
			err = cause.err
		default:
			panic(cause)
		}
	}()
	f()
	return nil
}

// Close ends the servers and removes their folders, the last one first. It returns what
// could not be cleaned up, and the errors of Error.
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

// Helper implements [TB]. It does nothing.
func (h *Host) Helper() {}

// Logf implements [TB]. It does nothing: the error of a server that failed contains its
// log.
func (h *Host) Logf(string, ...any) {}

// Error implements [TB]. Close returns its arguments.
func (h *Host) Error(args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = true
	h.errs = append(h.errs, errorFromArgs(args))
}

// Fatal implements [TB]. It ends the function that was passed to Do.
func (h *Host) Fatal(args ...any) {
	h.mu.Lock()
	h.failed = true
	h.mu.Unlock()
	panic(fatalPanic{errorFromArgs(args)})
}

// Fatalf implements [TB]. It ends the function that was passed to Do.
func (h *Host) Fatalf(format string, args ...any) { h.Fatal(fmt.Errorf(format, args...)) }

// errorFromArgs keeps an error as it is, for errors.As.
func errorFromArgs(args []any) error {
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
