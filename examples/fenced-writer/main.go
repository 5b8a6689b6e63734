// Fenced-writer shows what the fencing token is for: a holder that was paused
// past the end of its lock wakes up and writes, and the resource refuses it,
// because it has seen a greater token since.
//
//	go run ./examples/fenced-writer
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/filestore"
	_ "github.com/holdfast-go/holdfast/memstore"
)

// A register accepts a write only with a token that is not smaller than every
// one it has seen. In SQL the same is
//
//	UPDATE register SET value = $1, token = $2 WHERE token <= $2
type register struct {
	mu    sync.Mutex
	token int64
	value string
}

func (r *register) write(token int64, value string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if token < r.token {
		return fmt.Errorf("stale token")
	}
	r.token, r.value = token, value
	return nil
}

func main() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, cmp.Or(os.Getenv("HOLDFAST_STORE"), "memory:"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	var r register
	// NoRenew and a short TTL stand for a process that is stopped, swapped out,
	// or cut off: it does not renew, and does not know.
	paused, err := locks.Acquire(ctx, "register", &holdfast.Options{TTL: 100 * time.Millisecond, NoRenew: true})
	if err != nil {
		log.Fatal(err)
	}
	successor, err := locks.Acquire(ctx, "register", nil) // waits until the TTL is over
	if err != nil {
		log.Fatal(err)
	}
	defer successor.Release()

	fmt.Println("successor writes:", result(r.write(successor.Token(), "new")))
	fmt.Println("paused holder writes:", result(r.write(paused.Token(), "old")))
	fmt.Println("had it asked, it would have known:", paused.Err() != nil)
	fmt.Println("the register holds:", r.value)
}

func result(err error) string {
	if err != nil {
		return "refused, " + err.Error()
	}
	return "done"
}
