package httplock_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/httplock"
	"github.com/holdfast-go/holdfast/memstore"
)

func Example() {
	locks := holdfast.New(memstore.New(), nil)
	defer locks.Close()

	key := func(r *http.Request) string { return "invoice:" + r.PathValue("id") }
	alone := httplock.Middleware(locks, key, nil)

	mux := http.NewServeMux()
	mux.Handle("POST /invoices/{id}", alone(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// While this is served, another request for the same invoice comes in.
		second := httptest.NewRecorder()
		mux.ServeHTTP(second, httptest.NewRequest("POST", "/invoices/42", nil))
		fmt.Println("second:", second.Code, second.Header().Get("Retry-After"))

		fmt.Fprintln(w, "token:", holdfast.FromContext(r.Context()).Token() > 0)
	})))
	first := httptest.NewRecorder()
	mux.ServeHTTP(first, httptest.NewRequest("POST", "/invoices/42", nil))
	fmt.Print("first: ", first.Code, " ", first.Body)
	// Output:
	// second: 409 1
	// first: 200 token: true
}
