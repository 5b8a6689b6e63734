//go:build unix

package servers

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
)

// A Host is a testing.TB for programs that are no tests. Its creator must close it, best by defer:
// then the servers end with the program, even if that panics. The zero value is ready to use.
// Helper and Logf do nothing: the error of a server that failed contains its log.
type Host struct {
	testing.TB // nil: what this package does not call is not there

	mu       sync.Mutex
	cleanups []func()
	errs     []error // the arguments of Error
	failed   bool
}

// A fatalPanic is the value with which Fatal panics. Do recovers it.
type fatalPanic struct{ err error }

// Do calls f and returns the error with which f, or a server on its behalf, has called Fatal.
// Different goroutines may call it at the same time, for different servers.
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

// Close ends the servers and removes their folders, the last one first. It returns what could not
// be cleaned up, and the errors of Error.
func (h *Host) Close() error {
	for _, cleanup := range slices.Backward(h.cleanups) {
		if err := h.Do(cleanup); err != nil {
			h.Error(err)
		}
	}
	h.cleanups = nil
	return errors.Join(h.errs...)
}

// lock locks the Host until the function that it returns is called.
func (h *Host) lock() (unlock func()) {
	h.mu.Lock()
	return h.mu.Unlock
}

// These methods of [testing.TB] are those that this package calls.

func (h *Host) Helper()                           {}
func (h *Host) Logf(string, ...any)               {}
func (h *Host) Failed() bool                      { defer h.lock()(); return h.failed }
func (h *Host) Cleanup(f func())                  { defer h.lock()(); h.cleanups = append(h.cleanups, f) }
func (h *Host) Fatalf(format string, args ...any) { h.Fatal(fmt.Errorf(format, args...)) }

func (h *Host) Error(args ...any) {
	defer h.lock()()
	h.failed, h.errs = true, append(h.errs, errorFromArgs(args))
}

func (h *Host) Fatal(args ...any) {
	defer h.lock()()
	h.failed = true
	panic(fatalPanic{errorFromArgs(args)})
}

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

// errorFromArgs keeps an error as it is, for errors.As.
func errorFromArgs(args []any) error {
	if err, ok := args[0].(error); ok && len(args) == 1 {
		return err
	}
	return errors.New(fmt.Sprint(args...))
}
