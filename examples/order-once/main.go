// Order-once processes each order once, although three workers race for all of them. A worker that
// does not get the lock of an order at once goes on to the next order. A worker that gets it checks
// whether the order is done already.
//
//	go run ./examples/order-once
//	HOLDFAST_STORE=file:///tmp/orders go run ./examples/order-once
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"

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

	shop := &shop{}
	var workers sync.WaitGroup
	for range 3 {
		workers.Go(func() {
			for order := range 5 {
				if err := process(ctx, locks, shop, order); err != nil {
					log.Print(err)
				}
			}
		})
	}
	workers.Wait()
	for order, times := range shop.charged {
		fmt.Printf("order %d was charged %d time\n", order, times)
	}
}

// process charges an order, unless another worker has done so or is doing so.
func process(ctx context.Context, locks *holdfast.Client, shop *shop, order int) error {
	lock, err := locks.TryAcquire(ctx, fmt.Sprintf("order:%d:process", order), nil)
	if errors.Is(err, holdfast.ErrHeld) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Release()
	if shop.isCharged(order) {
		return nil
	}
	shop.addCharge(order)
	return lock.Err() // not nil if the lock was lost meanwhile
}

// shop stands for the database. The locks ensure that only one worker at a time is between
// isCharged and addCharge of the same order.
type shop struct {
	mu      sync.Mutex
	charged [5]int
}

func (s *shop) isCharged(order int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.charged[order] > 0
}

func (s *shop) addCharge(order int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.charged[order]++
}
