package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memstore"
)

func Example() {
	ctx := context.Background()
	locks := holdfast.New(memstore.New(), nil)
	defer locks.Close()

	lock, err := locks.Acquire(ctx, "invoices/42", nil) // waits until it has it
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Release()

	fmt.Println(lock.Name(), lock.Token() > 0, lock.Err())
	// Output: invoices/42 true <nil>
}

// The code of the README, but for the store.
func Example_readme() {
	ship := func(ctx context.Context, token int64) error {
		fmt.Println("shipping:", ctx.Err() == nil && token > 0)
		return nil
	}
	run := func(ctx context.Context) error {
		locks, err := holdfast.Open(ctx, "memory:", nil)
		if err != nil {
			return err
		}
		defer locks.Close()

		lock, err := locks.Acquire(ctx, "invoices/42", nil) // waits until it has it, or ctx ends
		if err != nil {
			return err
		}
		defer lock.Release()

		return ship(lock.Context(), lock.Token()) // the context ends if the lock is lost
	}
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output: shipping: true
}

func ExampleClient_Do() {
	ctx := context.Background()
	locks := holdfast.New(memstore.New(), nil)
	defer locks.Close()

	err := locks.Do(ctx, "report:daily", nil, func(ctx context.Context) error {
		fmt.Println("nobody else writes the report now")
		return ctx.Err() // ends when the lock is lost
	})
	fmt.Println(err)
	// Output:
	// nobody else writes the report now
	// <nil>
}

func ExampleClient_TryAcquire() {
	ctx := context.Background()
	locks := holdfast.New(memstore.New(), &holdfast.Config{Holder: "replica-1"})
	defer locks.Close()

	first, err := locks.TryAcquire(ctx, "invoices/42", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer first.Release()

	_, err = locks.TryAcquire(ctx, "invoices/42", nil)
	var held *holdfast.HeldError
	if errors.As(err, &held) {
		fmt.Println("held by", held.Record.Holder)
	}
	// Output: held by replica-1
}

// A function that runs at most once a minute, however many replicas call it.
func ExampleOptions_minHold() {
	ctx := context.Background()
	locks := holdfast.New(memstore.New(), nil)
	defer locks.Close()

	for range 3 {
		lock, err := locks.TryAcquire(ctx, "cleanup", &holdfast.Options{MinHold: time.Minute})
		if errors.Is(err, holdfast.ErrHeld) {
			fmt.Println("not yet")
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("cleaning up")
		lock.Release()
	}
	// Output:
	// cleaning up
	// not yet
	// not yet
}

func ExampleLock_Extend() {
	ctx := context.Background()
	locks := holdfast.New(memstore.New(), nil)
	defer locks.Close()

	lock, err := locks.Acquire(ctx, "import", &holdfast.Options{TTL: time.Minute, NoRenew: true})
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Release()
	if err := lock.Extend(ctx, time.Hour); err != nil {
		log.Fatal(err)
	}
	fmt.Println(time.Until(lock.Deadline()) > 50*time.Minute)
	// Output: true
}

func ExampleOpen() {
	locks, err := holdfast.Open(context.Background(), "memory:", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	fmt.Println(locks.Guarantees().Scope)
	// Output: process
}
