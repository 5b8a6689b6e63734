package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/ratelimit"
)

func Example() {
	ctx := context.Background()
	locks := holdfast.New(memstore.New(), nil)
	defer locks.Close()

	for range 2 {
		err := ratelimit.New(locks, 1, time.Minute).Take(ctx, "sms:+49123")
		fmt.Println(err == nil, errors.Is(err, ratelimit.ErrLimited))
	}
	// Output:
	// true false
	// false true
}

// Three calls in any ten seconds for each client, over all replicas.
func ExampleLimiter_Take() {
	locks := holdfast.New(memstore.New(), nil)
	defer locks.Close()

	limit := ratelimit.New(locks, 3, 10*time.Second)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var limited *ratelimit.LimitError
		err := limit.Take(r.Context(), "export:"+r.Header.Get("X-Client"))
		switch {
		case errors.As(err, &limited):
			w.Header().Set("Retry-After", limited.Seconds())
			http.Error(w, "too many exports", http.StatusTooManyRequests)
			return
		case err != nil:
			http.Error(w, "try again later", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "exported")
	})
	for range 4 {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest("GET", "/", nil))
		fmt.Println(answer.Code, answer.Result().Header["Retry-After"])
	}
	// Output:
	// 200 []
	// 200 []
	// 200 []
	// 429 [10]
}
