// Report runs a piece of work under a lock with Client.Do: acquire, run, release, and the work's
// context ends if the lock is lost.
//
//	go run ./examples/report
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

func main() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, cmp.Or(os.Getenv("HOLDFAST_STORE"), "memory:"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	options := &holdfast.Options{
		Wait:     10 * time.Second,
		Metadata: map[string]string{"reason": "nightly report"},
	}
	err = locks.Do(ctx, "report:daily", options, func(ctx context.Context) error {
		return writeReport(ctx, os.Stdout)
	})
	if err != nil {
		log.Fatal(err)
	}
}

// writeReport stops between two lines when its context ends: then the lock is lost, or the program
// is to end.
func writeReport(ctx context.Context, out *os.File) error {
	for _, line := range []string{"orders: 42", "refunds: 1", "complaints: 0"} {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		fmt.Fprintln(out, line)
	}
	return nil
}
