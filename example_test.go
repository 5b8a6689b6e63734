package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
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

// Work that runs at most once a minute, however many replicas try.
func ExampleLock_ReleaseKeep() {
	ctx := context.Background()
	locks := holdfast.New(memstore.New(), nil)
	defer locks.Close()

	for range 3 {
		lock, err := locks.TryAcquire(ctx, "cleanup", nil)
		if errors.Is(err, holdfast.ErrHeld) {
			fmt.Println("not yet")
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("cleaning up")
		lock.ReleaseKeep(time.Minute)
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
	fmt.Println(locks.Guarantees().Store, locks.Guarantees().InProcess)
	// Output: memory true
}

func ExampleDoValue() {
	ctx := context.Background()
	locks := holdfast.New(memstore.New(), nil)
	defer locks.Close()

	report, err := holdfast.DoValue(ctx, locks, "report:daily", nil, func(ctx context.Context) (string, error) {
		return "all is well", ctx.Err()
	})
	fmt.Println(report, err)
	// Output: all is well <nil>
}

// Work that another replica does already is left to it.
func ExampleClient_TryDo() {
	ctx := context.Background()
	locks := holdfast.New(memstore.New(), nil)
	defer locks.Close()

	clean := func(ctx context.Context) error {
		fmt.Println("cleaning up")
		again := locks.TryDo(ctx, "cleanup", nil, func(context.Context) error { return nil })
		fmt.Println("for others it is held:", errors.Is(again, holdfast.ErrHeld))
		return nil
	}
	if err := locks.TryDo(ctx, "cleanup", nil, clean); err != nil && !errors.Is(err, holdfast.ErrHeld) {
		log.Fatal(err)
	}
	// Output:
	// cleaning up
	// for others it is held: true
}

// A readiness probe: the program is of no use without its locks.
func ExampleClient_Ping() {
	locks := holdfast.New(memstore.New(), nil)
	defer locks.Close()

	http.HandleFunc("/ready", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if err := locks.Ping(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	fmt.Println(locks.Ping(context.Background()))
	// Output: <nil>
}

func ExampleClient_Locks() {
	ctx := context.Background()
	locks := holdfast.New(memstore.New(), nil)
	defer locks.Close()

	for _, name := range []string{"invoices/43", "invoices/42"} {
		lock, err := locks.Acquire(ctx, name, nil)
		if err != nil {
			log.Fatal(err)
		}
		defer lock.Release()
	}
	for _, lock := range locks.Locks() {
		fmt.Println(lock.Name(), time.Since(lock.Since()) < time.Minute)
	}
	// Output:
	// invoices/42 true
	// invoices/43 true
}
