//go:build unix

// Package stage has what a measurement happens on: servers of its own, the
// figures that they count, and the resources of this process.
package stage

import (
	"fmt"
	"os"
	"slices"
	"testing"
)

// host lets a program run the servers of package servers, which are made for
// tests: it has those methods of a testing.TB that they call.
type host struct {
	testing.TB // none: it is there for the methods that nobody calls

	cleanups []func()
	failed   bool
}

// failure is what a host panics with when something cannot go on.
type failure struct{ text string }

// Run calls f with what servers are started with, stops them afterwards, and
// returns the error of f or of a server.
func Run(f func(tb testing.TB) error) (err error) {
	h := &host{}
	defer func() {
		for _, cleanup := range slices.Backward(h.cleanups) {
			cleanup()
		}
	}()
	defer func() {
		switch f := recover().(type) {
		case nil:
		case failure:
			h.failed = true
			err = fmt.Errorf("a server: %s", f.text)
		default:
			panic(f)
		}
	}()
	return f(h)
}

func (h *host) Helper()          {}
func (h *host) Cleanup(f func()) { h.cleanups = append(h.cleanups, f) }
func (h *host) Failed() bool     { return h.failed }

func (h *host) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (h *host) Errorf(format string, args ...any) {
	h.failed = true
	h.Logf(format, args...)
}

func (h *host) Error(args ...any) { h.Errorf("%s", fmt.Sprint(args...)) }

func (h *host) Fatalf(format string, args ...any) { panic(failure{fmt.Sprintf(format, args...)}) }
func (h *host) Fatal(args ...any)                 { panic(failure{fmt.Sprint(args...)}) }

func (h *host) TempDir() string {
	dir, err := os.MkdirTemp("", "holdfast-bench-")
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { _ = os.RemoveAll(dir) }) // It is in the system's folder of things to be removed.
	return dir
}
