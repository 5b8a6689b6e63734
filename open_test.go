package holdfast_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memstore"
)

// Two Clients of one URL exclude each other, with memory: as with every other store, and close it.
func TestOpen(t *testing.T) {
	for _, url := range []string{"memory:", "memory://shared"} {
		var clients []*holdfast.Client
		for range 2 {
			c, err := holdfast.Open(t.Context(), url, nil)
			if err != nil {
				t.Fatal(err)
			}
			clients = append(clients, c)
		}
		lock := acquire(t, clients[0], t.Name(), nil)
		wantErr(t, failure(clients[1].TryAcquire(t.Context(), t.Name(), nil)), holdfast.ErrHeld)
		release(t, lock)
		for _, c := range clients {
			noErr(t, c.Close())
			if _, err := c.Store().Lookup(t.Context(), "a"); err == nil {
				t.Error("Close left the store open that Open had made")
			}
		}
	}
}

// What a first program gets wrong has an error that names what to write, and no password.
func TestFirstMistakes(t *testing.T) {
	t.Parallel()
	known := regexp.MustCompile(`(?s)there are: .*redis://host:6379`)
	for url, want := range map[string]*regexp.Regexp{
		"localhost:6379": known, "cache.example.com:6379": known, "127.0.0.1:5432": known, "localhost": known,
		"db:5432/orders": known, "/srv/my locks/": known, "mongodb://host": known, "pigeon://user:SecretWord@loft": known,
		"user:SecretWord@host:6379": nil, "redis:SecretWord": nil, "//:SecretWord@redis:6379/0": nil,
		"redis://user:SecretWord%@host": regexp.MustCompile("in a password, .* are written as %40 for @"), "//user:SecretWord@[::1": nil, "/%zz:SecretWord@host": nil, "memory://user:SecretWord@[": nil,
		"memory://\x7f:SecretWord": nil, "memory:?secret=1": nil, "memory:///secret": nil,
	} {
		c, err := holdfast.Open(t.Context(), url, nil)
		if !errors.Is(err, holdfast.ErrInvalid) || c != nil || strings.Contains(err.Error(), "SecretWord") {
			t.Errorf("%s: %v", url, err)
		}
		if want != nil && !want.MatchString(err.Error()) {
			t.Errorf("%s: %v, want what a URL looks like", url, err)
		}
	}
	virtual(t, func(t *testing.T, ctx context.Context) {
		locks := open(t, memstore.New(), nil)
		acquire(t, locks, "a", nil)
		for what, o := range map[string]*holdfast.Options{"Wait": {Wait: 5}, "TTL": {TTL: 30}, "MaxHold": {MaxHold: 5}} {
			err := failure(locks.Acquire(ctx, "a", o))
			if err == nil || !regexp.MustCompile(`a number alone is nanoseconds: write .*\*time\.Second`).MatchString(err.Error()) {
				t.Errorf("%s: %v", what, err)
			}
		}
		err := failure(locks.Acquire(ctx, "a", &holdfast.Options{Wait: 5 * time.Millisecond}))
		if err == nil || strings.Contains(err.Error(), "nanoseconds") {
			t.Errorf("a short Wait: %v", err)
		}
	})
}
