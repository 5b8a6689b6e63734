package httplock_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/httplock"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/memstore"
)

func byPath(r *http.Request) string { return r.URL.Path[1:] }

// TestRefusals: a key that cannot be locked is the fault of the request, and a store that is down
// is no Conflict. Retry-After is honest, and Refuse can write another response.
func TestRefusals(t *testing.T) {
	store := memstore.New()
	defer store.Close()
	locks := holdfast.New(store, &holdfast.Config{Prefix: "web:"})
	defer locks.Close()
	kept, err := locks.Acquire(t.Context(), "kept", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := kept.ReleaseKeep(time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, err := locks.Acquire(t.Context(), "held", nil); err != nil {
		t.Fatal(err)
	}
	later := faultstore.Wrap(store)
	later.Set(faultstore.Acquire, func(context.Context, faultstore.Op, func()) error {
		return &driver.RetryError{Err: errors.New("loading"), After: 15 * time.Second}
	})
	loading := holdfast.New(later, nil)
	defer loading.Close()
	down := faultstore.Wrap(store)
	down.Set(faultstore.Acquire, faultstore.Refuse)
	unavailable := holdfast.New(down, nil)
	defer unavailable.Close()
	teapot := &httplock.Options{Refuse: func(w http.ResponseWriter, _ *http.Request, err error) {
		if !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("Refuse: %v", err)
		}
		w.WriteHeader(http.StatusTeapot)
	}}
	closed := holdfast.New(later, nil) // as at a shutdown: another replica can serve it
	closed.Close()
	never := func(http.ResponseWriter, *http.Request) { t.Error("it was served") }
	for name, test := range map[string]struct {
		locks *holdfast.Client
		key   string
		o     *httplock.Options
		code  int
		after string
	}{
		"too long":           {locks: locks, key: strings.Repeat("k", 256), code: http.StatusBadRequest},
		"too long by prefix": {locks: locks, key: strings.Repeat("k", 252), code: http.StatusBadRequest},
		"control character":  {locks: locks, key: "a\x00b", code: http.StatusBadRequest},
		"no UTF-8":           {locks: locks, key: "\xff", code: http.StatusBadRequest},
		"held":               {locks: locks, key: "held", code: http.StatusConflict, after: "1"},
		"waited in vain":     {locks: locks, key: "held", o: &httplock.Options{Wait: time.Millisecond}, code: http.StatusConflict, after: "1"},
		"kept":               {locks: locks, key: "kept", code: http.StatusConflict, after: "60"},
		"client closed":      {locks: closed, key: "a", code: http.StatusServiceUnavailable, after: "1"},
		"store down":         {locks: unavailable, key: "a", code: http.StatusServiceUnavailable, after: "1"},
		"store down, chosen": {locks: unavailable, key: "a", o: teapot, code: http.StatusTeapot, after: "1"},
		"loading":            {locks: loading, key: "a", code: http.StatusServiceUnavailable, after: "15"},
	} {
		key := func(*http.Request) string { return test.key }
		answer := httptest.NewRecorder()
		httplock.Middleware(test.locks, key, test.o)(http.HandlerFunc(never)).ServeHTTP(answer, httptest.NewRequest("GET", "/", nil))
		if answer.Code != test.code || answer.Header().Get("Retry-After") != test.after {
			t.Errorf("%s: %d, Retry-After %q; want %d, %q", name, answer.Code, answer.Header().Get("Retry-After"), test.code, test.after)
		}
	}
}

// TestFailed: Failed is called when the lock was not held to the end of the handler, whatever ended
// it, and not otherwise. The key is free then, also after a panic, which goes on.
func TestFailed(t *testing.T) {
	for name, test := range map[string]struct {
		end   func(r *http.Request, locks *holdfast.Client)
		want  error
		panic bool
	}{
		"nothing":         {end: func(*http.Request, *holdfast.Client) {}},
		"its own release": {end: func(r *http.Request, _ *holdfast.Client) { holdfast.FromContext(r.Context()).Release() }, want: holdfast.ErrReleased},
		"Close":           {end: func(_ *http.Request, c *holdfast.Client) { go c.Close() }, want: holdfast.ErrClosed},
		"panic":           {end: func(*http.Request, *holdfast.Client) {}, panic: true},
		"not confirmed":   {end: func(*http.Request, *holdfast.Client) {}, want: holdfast.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Virtual(t, func(t *testing.T, store driver.Store) {
				faulty, free := faultstore.Wrap(store), holdfast.ErrNotHeld
				switch test.want {
				case holdfast.ErrClosed:
					free = holdfast.ErrClosed // Nothing is looked up any more.
				case holdfast.ErrUnavailable:
					free = nil
					faulty.Set(faultstore.Release, faultstore.Refuse)
				}
				locks := storetest.Client(t, faulty, "a")
				var failed []error
				o := &httplock.Options{Failed: func(_ *http.Request, err error) { failed = append(failed, err) }}
				key := func(*http.Request) string { return "key" }
				handler := httplock.Middleware(locks, key, o)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					if holdfast.FromContext(r.Context()) == nil {
						t.Error("served without the lock")
					}
					test.end(r, locks)
					if test.want != nil && test.want != holdfast.ErrUnavailable {
						<-r.Context().Done()
					}
					time.Sleep(time.Second)
					if test.panic {
						panic(http.ErrAbortHandler)
					}
				}))
				func() {
					defer func() {
						if panicked := recover() == http.ErrAbortHandler; panicked != test.panic {
							t.Errorf("it panicked: %v", panicked)
						}
					}()
					handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
				}()
				if _, err := locks.Lookup(t.Context(), "key"); !errors.Is(err, free) {
					t.Errorf("after the handler: %v, want %v", err, free)
				}
				switch {
				case test.want == nil && len(failed) > 0, len(failed) > 1:
					t.Errorf("Failed: %v", failed)
				case test.want != nil && (len(failed) == 0 || !errors.Is(failed[0], test.want)):
					t.Errorf("Failed: %v, want %v", failed, test.want)
				}
			})
		})
	}
}

// TestMisconfigured: what can never acquire a lock is found before there is a request.
func TestMisconfigured(t *testing.T) {
	store := memstore.New()
	locks, misconfigured := storetest.Client(t, store, ""), storetest.Client(t, store, "a\nb")
	for name, make := range map[string]func(){
		"TTL out of bounds":  func() { httplock.Middleware(locks, byPath, &httplock.Options{TTL: -1}) },
		"Wait out of bounds": func() { httplock.Middleware(locks, byPath, &httplock.Options{Wait: -1}) },
		"client":             func() { httplock.Middleware(misconfigured, byPath, nil) },
	} {
		func() {
			defer func() {
				if err, _ := recover().(error); !errors.Is(err, holdfast.ErrInvalid) {
					t.Errorf("%s: %v", name, err)
				}
			}()
			make()
		}()
	}
}

func TestEmptyKeyIsNotLocked(t *testing.T) {
	locks := storetest.Client(t, memstore.New(), "")
	served := false
	httplock.Middleware(locks, byPath, nil)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		served = holdfast.FromContext(r.Context()) == nil
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	if !served {
		t.Error("it was not served without a lock")
	}
}

// With SharedReads, GET and HEAD requests of a key are served together, and others alone.
func TestSharedReads(t *testing.T) {
	locks := holdfast.New(memstore.New(), nil)
	defer locks.Close()
	entered, leave := make(chan string), make(chan bool)
	middleware := httplock.Middleware(locks, byPath, &httplock.Options{SharedReads: true})
	ask := func(handler http.Handler, method string, want int) {
		answer := httptest.NewRecorder()
		if middleware(handler).ServeHTTP(answer, httptest.NewRequest(method, "/a", nil)); answer.Code != want {
			t.Errorf("%s: %d, want %d", method, answer.Code, want)
		}
	}
	var group sync.WaitGroup
	enter := func(method string) {
		group.Go(func() {
			ask(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { entered <- method; <-leave }), method, http.StatusOK)
		})
		<-entered
	}
	for range 2 {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodGet} {
			enter(method)
		}
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} { // beside readers
			ask(http.NotFoundHandler(), method, http.StatusConflict)
		}
		for range 3 {
			leave <- true
		}
		group.Wait()
		enter(http.MethodPost)
		ask(http.NotFoundHandler(), http.MethodGet, http.StatusConflict) // beside a writer
		leave <- true
		group.Wait()
	}
}
