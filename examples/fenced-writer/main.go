// Fenced-writer shows the purpose of the fencing token. A holder that was paused past the end of
// its lock resumes and writes. The resource rejects the write, because it has seen a greater token
// since.
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

// A register accepts a write only with a token that is not smaller than every token it has seen.
// The same in SQL:
//
//	UPDATE register SET value = $1, token = $2 WHERE token <= $2
type register struct {
	mu    sync.Mutex
	token int64
	value string
}

func (r *register) setValue(token int64, value string) error {
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
	// NoRenew and a short TTL simulate a process that is stopped, swapped out, or cut off: it does
	// not renew its lock, and does not notice that.
	paused, err := locks.Acquire(ctx, "register", &holdfast.Options{TTL: 100 * time.Millisecond, NoRenew: true})
	if err != nil {
		log.Fatal(err)
	}
	successor, err := locks.Acquire(ctx, "register", nil) // waits until the TTL is over
	if err != nil {
		log.Fatal(err)
	}
	defer successor.Release()

	fmt.Println("successor writes:", describe(r.setValue(successor.Token(), "new")))
	fmt.Println("paused holder writes:", describe(r.setValue(paused.Token(), "old")))
	fmt.Println("had it asked, it would have known:", paused.Err() != nil)
	fmt.Println("the register holds:", r.value)
}

func describe(err error) string {
	if err != nil {
		return "refused, " + err.Error()
	}
	return "done"
}
