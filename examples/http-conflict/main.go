// Http-conflict is a handler that does slow work for one client at a time. While another
// request, of this or any other replica, works on the same invoice, it responds with 409
// and a Retry-After.
//
//	go run ./examples/http-conflict
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/filestore"
	_ "github.com/holdfast-go/holdfast/memstore"
)

func main() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, cmp.Or(os.Getenv("HOLDFAST_STORE"), "memory:"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	working, finish := make(chan bool), make(chan bool)
	server := httptest.NewServer(handler(locks, func(context.Context) {
		working <- true
		<-finish
	}))
	defer server.Close()

	first := make(chan string)
	go func() { first <- postRequest(server.URL + "/invoices/42") }()
	<-working
	fmt.Println("second request:", postRequest(server.URL+"/invoices/42"))
	finish <- true
	fmt.Println("first request:", <-first)
}

// handler serves each invoice under its lock.
func handler(locks *holdfast.Client, work func(context.Context)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /invoices/{id}", func(w http.ResponseWriter, r *http.Request) {
		name := "invoice:" + r.PathValue("id")
		lock, err := locks.TryAcquire(r.Context(), name, nil)
		switch {
		case errors.Is(err, holdfast.ErrHeld):
			w.Header().Set("Retry-After", "1") // the work takes about that long, not the rest of the TTL
			http.Error(w, "being worked on", http.StatusConflict)
			return
		case err != nil:
			http.Error(w, "try again later", http.StatusServiceUnavailable)
			return
		}
		defer lock.Release()
		work(lock.Context())
		fmt.Fprint(w, "done")
	})
	return mux
}

func postRequest(url string) string {
	resp, err := http.Post(url, "", nil)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	return fmt.Sprintf("%s, Retry-After %q", resp.Status, resp.Header.Get("Retry-After"))
}
