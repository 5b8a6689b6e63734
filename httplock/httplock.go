package httplock

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Options configure how requests are kept apart. The zero value, and nil, are good defaults.
type Options struct {
	// TTL is the time after which the lock of a crashed replica is free. The bounds and the default
	// are those of holdfast.Options.TTL. It has nothing to do with how long a request takes.
	TTL time.Duration

	// Wait is how long a request waits for its key; 0 means not at all.
	Wait time.Duration

	// SharedReads serves GET and HEAD requests of one key together: they take its lock with
	// holdfast.Options.Shared, and every other request alone. A store that has no shared locks
	// refuses them.
	SharedReads bool

	// Refuse writes the response to a request that is not served: because its key is taken (err
	// matches holdfast.ErrHeld), because the key cannot be the name of a lock (holdfast.ErrInvalid:
	// see driver.MaxName), because the lock was lost at once, or because of the store or the
	// Client. The header Retry-After is set where it is of use, and may be changed. The default
	// responds with 409, 400 or 503, or with 500 if the error would be the same for each request;
	// each has a line of text.
	Refuse func(w http.ResponseWriter, r *http.Request, err error)

	// Failed is called when a request was served, but its lock was not held to the end of the
	// handler, or its release was not confirmed. The error matches holdfast.ErrLost,
	// holdfast.ErrReleased (after Client.ReleaseAll, or a release by the handler; after
	// Client.Close, holdfast.ErrClosed as well), or holdfast.ErrUnavailable. If Failed is nil, the
	// error is ignored: the context of the request has ended with the lock. Of a handler that
	// panics there is the panic alone.
	Failed func(r *http.Request, err error)
}

// Middleware returns middleware that holds the lock of a request's key while the request is served.
// The key is the name of a lock, as in "invoice:42". A request with an empty key is served without
// a lock. Middleware panics if locks or key is nil, and if no lock can be acquired by the Client
// with these Options, whatever the key.
func Middleware(locks *holdfast.Client, key func(*http.Request) string, o *Options) func(http.Handler) http.Handler {
	if locks == nil || key == nil {
		panic("httplock: Middleware needs a Client and a function for the key")
	}
	m := middleware{locks: locks, key: key}
	if o != nil {
		m.o = *o
	}
	if m.o.Refuse == nil {
		m.o.Refuse = respondRefusal
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel() // No request reaches the store.
	none := func(context.Context) error { return nil }
	if err := m.do(ended, "k", false, none); errors.Is(err, holdfast.ErrInvalid) {
		panic(err)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serveRequest(w, r, next) })
	}
}

type middleware struct {
	locks *holdfast.Client
	key   func(*http.Request) string
	o     Options
}

func (m *middleware) serveRequest(w http.ResponseWriter, r *http.Request, next http.Handler) {
	key := m.key(r)
	if key == "" {
		next.ServeHTTP(w, r)
		return
	}
	shared := m.o.SharedReads && (r.Method == http.MethodGet || r.Method == http.MethodHead)
	served := false
	err := m.do(r.Context(), key, shared, func(ctx context.Context) error {
		served = true
		next.ServeHTTP(w, r.WithContext(ctx))
		return nil
	})
	switch {
	case !served:
		if after := m.retryAfter(err); after > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(after.Seconds()))))
		}
		m.o.Refuse(w, r, err)
	case err != nil && m.o.Failed != nil:
		m.o.Failed(r, err)
	}
}

// do runs work under the lock of a key, at once or within Options.Wait.
func (m *middleware) do(ctx context.Context, key string, shared bool, work func(context.Context) error) error {
	o := &holdfast.Options{TTL: m.o.TTL, Wait: m.o.Wait, Shared: shared}
	if o.Wait == 0 {
		return m.locks.TryDo(ctx, key, o, work)
	}
	return m.locks.Do(ctx, key, o, work)
}

// retryAfter returns the time after which to send the request again, or 0 if that would fail again.
// The time left of a lock that is held does not count: its holder renews the lock, or releases it
// sooner.
func (m *middleware) retryAfter(err error) time.Duration {
	var held *holdfast.HeldError
	var later *driver.RetryError
	switch {
	case errors.As(err, &held) && held.Record.Kept && held.Record.Remaining > 0:
		return held.Record.Remaining
	case errors.As(err, &later) && later.After > 0:
		return later.After
	case driver.Permanent(err) && !errors.Is(err, holdfast.ErrClosed):
		return 0
	}
	return time.Second
}

// respondRefusal is the default of Options.Refuse.
func respondRefusal(w http.ResponseWriter, _ *http.Request, err error) {
	switch {
	case errors.Is(err, holdfast.ErrHeld):
		http.Error(w, "a request for the same is being served", http.StatusConflict)
	case errors.Is(err, holdfast.ErrInvalid):
		http.Error(w, "the key of the request is not valid", http.StatusBadRequest)
	case driver.Permanent(err) && !errors.Is(err, holdfast.ErrClosed):
		http.Error(w, "cannot be served", http.StatusInternalServerError)
	default:
		http.Error(w, "cannot be served now", http.StatusServiceUnavailable)
	}
}
