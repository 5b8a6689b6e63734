// Long-job outlives its TTL twice: once with automatic renewal, which is the default, and once by
// extending the lock manually before each step.
//
//	go run ./examples/long-job
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/filestore"
	_ "github.com/holdfast-go/holdfast/memstore"
)

const (
	ttl  = time.Second
	step = 400 * time.Millisecond
)

func main() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, cmp.Or(os.Getenv("HOLDFAST_STORE"), "memory:"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	if err := heartbeat(ctx, locks); err != nil {
		log.Fatal(err)
	}
	if err := extendManually(ctx, locks); err != nil {
		log.Fatal(err)
	}
}

// heartbeat lets the client renew the lock, and only watches its context.
func heartbeat(ctx context.Context, locks *holdfast.Client) error {
	lock, err := locks.Acquire(ctx, "import:customers", &holdfast.Options{TTL: ttl})
	if err != nil {
		return err
	}
	defer lock.Release()
	for range 5 {
		if err := runStep(lock.Context()); err != nil {
			return err
		}
	}
	fmt.Println("renewed by itself: still held after twice the TTL")
	return lock.Release()
}

// extendManually extends the lock by the time of a step before each step. If a step hangs, the lock
// is not renewed, and another process can acquire it when the TTL is over.
func extendManually(ctx context.Context, locks *holdfast.Client) error {
	lock, err := locks.Acquire(ctx, "import:customers", &holdfast.Options{TTL: ttl, NoRenew: true})
	if err != nil {
		return err
	}
	defer lock.Release()
	for range 5 {
		if err := lock.Extend(ctx, ttl); err != nil {
			return err
		}
		if err := runStep(lock.Context()); err != nil {
			return err
		}
	}
	fmt.Println("extended by hand: still held after twice the TTL")
	return lock.Release()
}

// work is a step that stops when its context ends.
func runStep(ctx context.Context) error {
	select {
	case <-time.After(step):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
