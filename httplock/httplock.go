package httplock

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/bind"
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
	lock, err := bind.Acquire(r.Context(), m.locks, key, holdfast.Options{TTL: m.o.TTL, Wait: m.o.Wait})
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
	ctx, cancel := bind.Context(r.Context(), lock)
	defer cancel()
	next.ServeHTTP(w, r.WithContext(ctx))
}

// Lock returns the lock under which a request with this context is served, for
// its token; or nil.
func Lock(ctx context.Context) *holdfast.Lock { return bind.Lock(ctx) }

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
