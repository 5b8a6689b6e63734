package httplock_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/httplock"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/internal/recipetest"
	"github.com/holdfast-go/holdfast/memstore"
)

func byPath(r *http.Request) string { return r.URL.Path[1:] }

// serve starts a replica of a service.
func serve(t *testing.T, locks *holdfast.Client, o *httplock.Options, handler http.HandlerFunc) string {
	server := httptest.NewServer(httplock.New(locks, byPath, o)(handler))
	t.Cleanup(server.Close)
	return server.URL
}

func get(t *testing.T, url string) *http.Response {
	resp, err := http.Get(url)
	if err != nil {
		t.Error(err)
		return &http.Response{}
	}
	_, _ = io.Copy(io.Discard, resp.Body) // It may be cut.
	resp.Body.Close()
	return resp
}

// TestOneAtATime: on every store, of requests to three replicas for one key one
// is served at a time: the others wait, or are told that there is a conflict.
func TestOneAtATime(t *testing.T) {
	recipetest.Each(t, func(t *testing.T, s *recipetest.Store) {
		var inside, most, served atomic.Int32
		entered, leave := make(chan bool, 100), make(chan bool)
		handler := func(w http.ResponseWriter, r *http.Request) {
			if n := inside.Add(1); n > most.Load() {
				most.Store(n)
			}
			served.Add(1)
			entered <- true
			<-leave
			inside.Add(-1)
		}
		var waiting, refusing []string
		for _, locks := range s.Replicas(t, 3) {
			waiting = append(waiting, serve(t, locks, &httplock.Options{Wait: time.Minute}, handler))
			refusing = append(refusing, serve(t, locks, nil, handler))
		}
		var group sync.WaitGroup
		for _, url := range waiting {
			group.Go(func() {
				if resp := get(t, url+"/a"); resp.StatusCode != http.StatusOK {
					t.Errorf("one who waits: %v", resp.Status)
				}
			})
		}
		<-entered
		for _, url := range refusing {
			resp := get(t, url+"/a")
			if after := resp.Header.Get("Retry-After"); resp.StatusCode != http.StatusConflict || after == "" {
				t.Errorf("one who does not wait: %v, Retry-After %q", resp.Status, after)
			}
		}
		close(leave)
		group.Wait()
		if most.Load() != 1 || served.Load() != 3 {
			t.Errorf("%d at once, %d in all; want 1 and 3", most.Load(), served.Load())
		}
		if resp := get(t, refusing[0]+"/a"); resp.StatusCode != http.StatusOK {
			t.Errorf("after all: %v", resp.Status)
		}
	})
}

// TestLossEndsTheRequest: the context of a request ends when its lock is lost,
// and that is told.
func TestLossEndsTheRequest(t *testing.T) {
	store := memstore.New()
	defer store.Close()
	locks := holdfast.New(store, nil)
	defer locks.Close()
	failed := make(chan error, 1)
	url := serve(t, locks, &httplock.Options{Failed: func(_ *http.Request, err error) { failed <- err }}, func(w http.ResponseWriter, r *http.Request) {
		if _, err := locks.Break(r.Context(), "a"); err != nil {
			t.Error(err)
		}
		<-r.Context().Done()
		if cause := context.Cause(r.Context()); !errors.Is(cause, holdfast.ErrLost) {
			t.Errorf("cause: %v", cause)
		}
	})
	get(t, url+"/a")
	if err := <-failed; !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("Failed: %v", err)
	}
}

// TestPanicLetsGo, and an empty key is not locked.
func TestPanicLetsGo(t *testing.T) {
	store := memstore.New()
	defer store.Close()
	locks := holdfast.New(store, nil)
	defer locks.Close()
	handler := httplock.New(locks, byPath, nil)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if lock := holdfast.FromContext(r.Context()); (lock == nil) != (r.URL.Path == "/") {
			t.Errorf("%s is served under %v", r.URL.Path, lock)
		}
		panic(http.ErrAbortHandler)
	}))
	for _, path := range []string{"/a", "/"} {
		func() {
			defer func() {
				if r := recover(); r != http.ErrAbortHandler {
					t.Errorf("recovered %v", r)
				}
			}()
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
		}()
	}
	if _, err := locks.Lookup(t.Context(), "a"); !errors.Is(err, holdfast.ErrNotHeld) {
		t.Errorf("after a panic: %v", err)
	}
}

// TestStoreDown is no conflict; what is said can be chosen.
func TestStoreDown(t *testing.T) {
	store := faultstore.Wrap(memstore.New())
	store.Set(faultstore.Acquire, faultstore.Refuse)
	locks := holdfast.New(store, nil)
	defer locks.Close()
	never := func(http.ResponseWriter, *http.Request) { t.Error("it was served") }
	if resp := get(t, serve(t, locks, nil, never)+"/a"); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("%v, Retry-After %q", resp.Status, resp.Header.Get("Retry-After"))
	}
	o := &httplock.Options{Refuse: func(w http.ResponseWriter, _ *http.Request, err error) {
		if !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("Refuse: %v", err)
		}
		w.WriteHeader(http.StatusTeapot)
	}}
	if resp := get(t, serve(t, locks, o, never)+"/a"); resp.StatusCode != http.StatusTeapot {
		t.Error(resp.Status)
	}
}
