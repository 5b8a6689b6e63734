package httplock

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast"
)

// Options say how requests are kept apart. The zero value, and nil, are good
// defaults.
type Options struct {
	// TTL is the time after which the lock of a crashed replica is free. The
	// bounds and the default are those of holdfast.Options.TTL. It has nothing
	// to do with how long a request takes.
	TTL time.Duration

	// Wait is for how long a request waits for its key; 0 means not at all.
	Wait time.Duration

	// Refuse answers a request that is not served, because its key is taken
	// (err matches holdfast.ErrHeld) or because the store cannot be asked. The header
	// Retry-After is set already, and may be changed. The default answers 409
	// or 503 with a line of text.
	Refuse func(w http.ResponseWriter, r *http.Request, err error)

	// Failed is told when a request was served, but its lock was lost meanwhile
	// (holdfast.ErrLost) or its release not confirmed. nil ignores it: the
	// context has told the handler of a loss.
	Failed func(r *http.Request, err error)
}

// New returns middleware that holds the lock of a request's key while the
// request is served. The key is the name of a lock, as in "invoice:42"; a request
// with an empty key is served without one.
func New(locks *holdfast.Client, key func(*http.Request) string, o *Options) func(http.Handler) http.Handler {
	m := middleware{locks: locks, key: key}
	if o != nil {
		m.o = *o
	}
	if m.o.Refuse == nil {
		m.o.Refuse = refuse
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
	}
}

type middleware struct {
	locks *holdfast.Client
	key   func(*http.Request) string
	o     Options
}

func (m *middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	key := m.key(r)
	if key == "" {
		next.ServeHTTP(w, r)
		return
	}
	lock, err := m.acquire(r.Context(), key)
	if err != nil {
		w.Header().Set("Retry-After", retryAfter(err))
		m.o.Refuse(w, r, err)
		return
	}
	defer func() { // after a panic, too
		if err := lock.Release(); err != nil && m.o.Failed != nil {
			m.o.Failed(r, err)
		}
	}()
	_ = lock.Do(r.Context(), func(ctx context.Context) error { // Release says the same.
		next.ServeHTTP(w, r.WithContext(ctx))
		return nil
	})
}

// acquire takes the lock of a key, at once or within Options.Wait.
func (m *middleware) acquire(ctx context.Context, key string) (*holdfast.Lock, error) {
	o := &holdfast.Options{TTL: m.o.TTL, Wait: m.o.Wait}
	if o.Wait == 0 {
		return m.locks.TryAcquire(ctx, key, o)
	}
	return m.locks.Acquire(ctx, key, o)
}

// retryAfter is when to come again, in seconds: when the other's lock ends unless
// it is renewed, as far as the store told.
func retryAfter(err error) string {
	var held *holdfast.HeldError
	if !errors.As(err, &held) {
		return "1"
	}
	return strconv.Itoa(max(1, int(math.Ceil(held.Record.Remaining.Seconds()))))
}

func refuse(w http.ResponseWriter, _ *http.Request, err error) {
	if errors.Is(err, holdfast.ErrHeld) {
		http.Error(w, "a request for the same is being served", http.StatusConflict)
		return
	}
	http.Error(w, "cannot be served now", http.StatusServiceUnavailable)
}
