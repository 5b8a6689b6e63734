// Package storecheck has what the tests of several stores check beside package
// drivertest: the errors of a server that is unfit.
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

// bound is how long a call may take, and soon how long one that fails.
const (
	bound = 20 * time.Second
	soon  = bound / 2
)

// Calls is a call of every verb, about the lock of a request.
func Calls(s driver.Store, req driver.AcquireRequest) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Acquire": func(ctx context.Context) error {
			_, err := s.Acquire(ctx, req)
			return err
		},
		"Renew": func(ctx context.Context) error {
			_, err := s.Renew(ctx, []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: req.TTL}})
			return err
		},
		"Release": func(ctx context.Context) error {
			_, err := s.Release(ctx, driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
			return err
		},
		"Lookup": func(ctx context.Context) error {
			_, _, err := s.Lookup(ctx, req.Name)
			return err
		},
		"Break": func(ctx context.Context) error {
			_, _, err := s.Break(ctx, req.Name)
			return err
		},
		"List": func(ctx context.Context) error {
			var last error
			for _, err := range s.List(ctx, req.Name) {
				last = err
			}
			return last
		},
	}
}

// Fails checks the errors of these verbs: each comes soon, matches target, says
// what it must, and does not show the word "Secret", which the tests put into
// owners and passwords.
func Fails(t *testing.T, s driver.Store, req driver.AcquireRequest, target error, says string, verbs ...string) {
	t.Helper()
	all := Calls(s, req)
	for _, verb := range verbs {
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		began := time.Now()
		err := all[verb](ctx)
		cancel()
		if took := time.Since(began); took > soon {
			t.Errorf("%s: the error took %v", verb, took)
		}
		if !errors.Is(err, target) {
			t.Errorf("%s: %v, want an error that matches %q", verb, err, target)
			continue
		}
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %q, want it to say %q", verb, err, says)
		}
		if strings.Contains(err.Error(), "Secret") {
			t.Errorf("%s: the error shows a secret: %v", verb, err)
		}
	}
}

// Opens checks whether a URL is opened, by the opener of its scheme. A refusal is
// certain to have changed nothing, and shows no "Secret". Nothing may be dialled.
func Opens(t *testing.T, text string, good bool) {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil && !good {
		return // which is as good as a refusal
	}
	if err != nil {
		t.Fatal(err)
	}
	open, ok := driver.Lookup(u.Scheme)
	if !ok {
		t.Fatalf("no opener for %s", u.Scheme)
	}
	store, err := open(t.Context(), u)
	if good != (err == nil) {
		t.Errorf("%s: %v, want it opened: %v", text, err, good)
	}
	if err != nil && (!driver.NotApplied(err) || strings.Contains(err.Error(), "Secret")) {
		t.Errorf("%s: the error %v is of the wrong kind, or shows a secret", text, err)
	}
	if store != nil {
		_ = store.Close() // Nothing was dialled.
	}
}
