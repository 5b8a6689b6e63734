// Shutdown shows the order in which a service ends: first the HTTP server, which lets the requests
// in progress finish under their locks, then the background work, and finally the Client, which
// releases the remaining locks.
//
//	go run ./examples/shutdown
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	_ "github.com/holdfast-go/holdfast/filestore"
	"github.com/holdfast-go/holdfast/httplock"
	_ "github.com/holdfast-go/holdfast/memstore"
)

func main() {
	locks, err := holdfast.Open(context.Background(), cmp.Or(os.Getenv("HOLDFAST_STORE"), "memory:"), nil)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	working, leading := make(chan bool), make(chan bool)
	response := make(chan string)
	go func() { // a client, and then the operator
		<-leading
		go func() { response <- getText("http://" + listener.Addr().String() + "/invoices/42") }()
		<-working
		terminate(stop)
	}()
	if err := serveUntilDone(ctx, listener, locks, working, leading); err != nil {
		log.Fatal(err)
	}
	fmt.Println("the request was answered:", <-response)
}

// serveUntilDone serves requests and leads until ctx ends, and then shuts down in order.
func serveUntilDone(ctx context.Context, listener net.Listener, locks *holdfast.Client, working, leading chan<- bool) error {
	invoice := func(r *http.Request) string { return "invoice:" + r.PathValue("id") }
	lockEnded := func(_ *http.Request, err error) { log.Println("the lock was not held to the end:", err) }
	alone := httplock.Middleware(locks, invoice, &httplock.Options{Failed: lockEnded})
	mux := http.NewServeMux()
	mux.Handle("GET /invoices/{id}", alone(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		working <- true
		time.Sleep(100 * time.Millisecond) // the end of ctx does not end the request
		fmt.Fprint(w, "done under its lock: ", holdfast.FromContext(r.Context()).Err() == nil)
	})))
	server := &http.Server{Handler: mux}
	go server.Serve(listener)

	// Background work ends with ctx.
	var background sync.WaitGroup
	background.Go(func() {
		err := election.New(locks, "scheduler", nil).Run(ctx, func(ctx context.Context, _ election.Term) error {
			leading <- true
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) {
			log.Println(err)
		}
	})

	<-ctx.Done()
	fmt.Println("terminated")
	limit, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err := server.Shutdown(limit)
	fmt.Println("the server has shut down:", err)
	background.Wait()
	_, vacant := election.New(locks, "scheduler", nil).Leader(limit)
	fmt.Println("the leader has resigned:", vacant)
	// Close ends the context of a lock that is still held now, by a handler that has outlasted the
	// limit. The lock is released when the handler has stopped, or at its deadline.
	return errors.Join(err, locks.Close())
}

// terminate sends this process the signal that ends services.
func terminate(stop func()) {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Signal(syscall.SIGTERM)
	}
	if err != nil { // Windows has no such signal
		stop()
	}
}

func getText(url string) string {
	resp, err := http.Get(url)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s, %s", resp.Status, text)
}
