package drivertest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

// A recorder stands in for the *testing.T of a case and records how it fared, so that a case may
// fail without failing the test of the suite.
type recorder struct {
	testing.TB // what is not recorded goes to the real test

	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	failed   bool
	lines    []string
	cleanups []func()
}

// record runs a case as go test would.
func record(t *testing.T, c testCase, h Harness, have features) *recorder {
	rec := &recorder{TB: t}
	rec.ctx, rec.cancel = context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer rec.cleanUp()
		c.execute(rec, h, have)
	}()
	<-done
	time.Sleep(time.Minute) // Leaked goroutines of broken stores end in this time.
	return rec
}

func (r *recorder) cleanUp() {
	r.cancel()
	for len(r.cleanups) > 0 {
		last := len(r.cleanups) - 1
		f := r.cleanups[last]
		r.cleanups = r.cleanups[:last]
		f()
	}
}

func (r *recorder) note(failed bool, line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || failed
	r.lines = append(r.lines, line)
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// FailNow ends the goroutine of the case; its cleanups are run.
func (r *recorder) FailNow() {
	r.Fail()
	runtime.Goexit()
}

func (r *recorder) Context() context.Context          { return r.ctx }
func (r *recorder) Cleanup(f func())                  { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Helper()                           {}
func (r *recorder) Log(args ...any)                   { r.note(false, fmt.Sprintln(args...)) }
func (r *recorder) Logf(format string, args ...any)   { r.note(false, fmt.Sprintf(format, args...)) }
func (r *recorder) Fail()                             { r.note(true, "") }
func (r *recorder) Error(args ...any)                 { r.note(true, fmt.Sprintln(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.note(true, fmt.Sprintf(format, args...)) }
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); r.FailNow() }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); r.FailNow() }
