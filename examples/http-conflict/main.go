// Http-conflict is a handler that does a slow thing for one client at a time:
// while another request, of this or any other replica, works on the same
// invoice, it answers 409 and says when to come again.
//
//	go run ./examples/http-conflict
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"

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
	go func() { first <- post(server.URL + "/invoices/42") }()
	<-working
	fmt.Println("second request:", post(server.URL+"/invoices/42"))
	finish <- true
	fmt.Println("first request:", <-first)
}

// handler serves each invoice under its lock.
func handler(locks *holdfast.Client, work func(context.Context)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /invoices/{id}", func(w http.ResponseWriter, r *http.Request) {
		name := "invoice:" + r.PathValue("id")
		lock, err := locks.TryAcquire(r.Context(), name, nil)
		var held *holdfast.HeldError
		switch {
		case errors.As(err, &held):
			seconds := int(math.Ceil(held.Record.Remaining.Seconds()))
			w.Header().Set("Retry-After", strconv.Itoa(max(1, seconds)))
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

func post(url string) string {
	resp, err := http.Post(url, "", nil)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	return fmt.Sprintf("%s, Retry-After %q", resp.Status, resp.Header.Get("Retry-After"))
}
