// Package storecheck has checks that the tests of several stores make in addition to package
// drivertest: the errors of an unfit server, and the URLs that are opened. Its Eventually is that
// of all tests.
package storecheck

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// callTimeout is how long a call may take. errorTimeout is how long a call may take that returns an
// error.
const (
	callTimeout  = 20 * time.Second
	errorTimeout = callTimeout / 2
)

// Eventually returns when done reports true. It ends the test if that takes too long, on a machine
// that is busy with other things.
func Eventually(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("waited for a minute in vain: %s", what)
		}
	}
}

func failure[T any](_ T, err error) error { return err }

// Calls returns a call of every verb, for the lock of a request.
func Calls(s driver.Store, req driver.Request) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Acquire": func(ctx context.Context) error { return failure(s.Acquire(ctx, req)) },
		"Renew": func(ctx context.Context) error {
			return failure(s.Renew(ctx, []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: req.TTL}}))
		},
		"Release": func(ctx context.Context) error {
			return failure(s.Release(ctx, driver.ReleaseRequest{Name: req.Name, Owner: req.Owner}))
		},
		"Lookup": func(ctx context.Context) error { return failure(s.Lookup(ctx, req.Name)) },
		"Break":  func(ctx context.Context) error { return failure(s.Break(ctx, req.Name, 0)) },
		"List": func(ctx context.Context) (last error) {
			for _, err := range s.List(ctx, req.Name) {
				last = err
			}
			return last
		},
	}
}

// Fails checks the errors of these verbs. Each must come within errorTimeout, match target, and
// contain wantText. It must not contain the word "Secret", which the tests put into owners and
// passwords.
func Fails(t *testing.T, s driver.Store, req driver.Request,
	target error, wantText string, verbs ...string,
) {
	t.Helper()
	all := Calls(s, req)
	for _, verb := range verbs {
		ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
		began := time.Now()
		err := all[verb](ctx)
		cancel()
		if took := time.Since(began); took > errorTimeout {
			t.Errorf("%s: the error took %v", verb, took)
		}
		if !errors.Is(err, target) || !strings.Contains(err.Error(), wantText) || strings.Contains(err.Error(), "Secret") {
			t.Errorf("%s: %v, want an error that matches %q and contains %q, but no secret", verb, err, target, wantText)
		}
	}
}

// Opens checks whether the opener of its scheme opens a URL. The error of a refusal must mean that
// nothing was changed, and must not contain "Secret". Nothing may be dialed.
func Opens(t *testing.T, text string, good bool) {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil && !good {
		return // which is as good as a refusal
	}
	if err != nil {
		t.Fatal(err)
	}
	open, err := driver.Lookup(u.Scheme)
	if err != nil {
		t.Fatal(err)
	}
	store, err := open(t.Context(), u)
	if good != (err == nil) {
		t.Errorf("%s: %v, want it opened: %v", text, err, good)
	}
	if err != nil && (!driver.IsNotApplied(err) || strings.Contains(err.Error(), "Secret")) {
		t.Errorf("%s: the error %v is of the wrong kind, or shows a secret", text, err)
	}
	if store != nil {
		_ = store.Close() // Nothing was dialed.
	}
}
