package command

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memstore"
)

// A pausingWriter is paused when the first bytes of an answer are sent.
type pausingWriter struct {
	*httptest.ResponseRecorder
	pause time.Duration
}

func (w pausingWriter) Flush() { time.Sleep(w.pause) }

// TestLeaderAnswer: 200 is for the time of a lock, and an answer that the end of the lock meets is
// not completed.
func TestLeaderAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		client, other := holdfast.New(store, nil), holdfast.New(store, &holdfast.Config{Holder: "other"})
		defer client.Close()
		defer other.Close()
		page := &leaderPage{client: client, name: "office"}
		handler := page.handler()
		ask := func(pause time.Duration) (status int, body string, aborted bool) {
			w := pausingWriter{httptest.NewRecorder(), pause}
			defer func() {
				status, body = w.Code, w.Body.String()
				if err, ok := recover().(error); ok {
					aborted = errors.Is(err, http.ErrAbortHandler)
				}
			}()
			handler.ServeHTTP(w, httptest.NewRequest("GET", "/leader", nil))
			return
		}
		want := func(pause time.Duration, status int, words ...string) {
			t.Helper()
			got, body, aborted := ask(pause)
			if got != status || aborted || !strings.HasSuffix(body, "}\n") {
				t.Errorf("%d %q %v, want %d", got, body, aborted, status)
			}
			for _, word := range words {
				if !strings.Contains(body, word) {
					t.Errorf("%q is not in %q", word, body)
				}
			}
		}

		want(0, 503, `{"leading":false,"name":"office"}`)
		lock, err := client.Acquire(t.Context(), "office", &holdfast.Options{TTL: 10 * time.Second, NoRenew: true})
		if err != nil {
			t.Fatal(err)
		}
		page.lock.Store(lock)
		want(0, 200, `"leading":true`, `"holder":"`+lock.Holder()+`"`, `"token":9`, `"since":"`, `"remaining_ms":`)
		want(5*time.Second, 200)
		if status, body, aborted := ask(6 * time.Second); status != 200 || !aborted || strings.HasSuffix(body, "\n") {
			t.Errorf("paused for too long: %d %q, aborted: %v", status, body, aborted)
		}
		want(0, 503, `"leading":false`)
		if _, err := other.Acquire(t.Context(), "office", nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(leaderLookupInterval)
		want(0, 503, `"leading":false`, `"holder":"other"`, `"state":"held"`)
		store.Close()
		want(0, 503, `"holder":"other"`) // as of a moment ago
		time.Sleep(leaderLookupInterval)
		want(0, 503, `{"leading":false,"error":"the store does not answer","name":"office"}`)
	})
}
