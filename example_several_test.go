package holdfast_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memstore"
)

// Two accounts are locked at once. Whoever locks them the other way round does
// not get in a deadlock with this.
func ExampleClient_AcquireAll() {
	ctx := context.Background()
	locks := holdfast.New(memstore.New(), nil)
	defer locks.Close()

	accounts, err := locks.AcquireAll(ctx, []string{"account/7", "account/3"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer accounts.Release()

	tokens := accounts.Tokens()
	fmt.Println(accounts.Names(), tokens["account/3"] > 0, accounts.Err())
	// Output: [account/3 account/7] true <nil>
}

func ExampleClient_DoAll() {
	ctx := context.Background()
	locks := holdfast.New(memstore.New(), nil)
	defer locks.Close()

	err := locks.DoAll(ctx, []string{"account/7", "account/3"}, nil, func(ctx context.Context) error {
		fmt.Println("moving money between", holdfast.SetFromContext(ctx).Names())
		return ctx.Err() // it ends if either of the locks is lost
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: moving money between [account/3 account/7]
}

// A request takes the lock, and a worker in another process does the work.
func ExampleLock_HandOver() {
	ctx := context.Background()
	store := memstore.New() // in earnest one that both processes reach
	web, worker := holdfast.New(store, nil), holdfast.New(store, nil)
	defer web.Close()
	defer worker.Close()

	lock, err := web.TryAcquire(ctx, "report/9", &holdfast.Options{Detached: true, TTL: time.Minute})
	if err != nil {
		log.Fatal(err) // 409: it is being made
	}
	defer lock.Release() // does nothing once the lock is handed over
	ticket, err := lock.HandOver()
	if err != nil {
		log.Fatal(err)
	}
	queue := string(ticket) // goes to the worker, and to nobody else

	adopted, err := worker.Adopt(ctx, holdfast.Ticket(queue), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer adopted.Release()
	fmt.Println(lock.Err(), "-", adopted.Name(), adopted.Token() == lock.Token(), adopted.Err())
	// Output: lock handed over - report/9 true <nil>
}
