package once_test

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/once"
)

// A job that a queue delivers twice is done once.
func ExampleDo() {
	ctx := context.Background()
	locks := holdfast.New(memstore.New(), nil)
	defer locks.Close()

	for range 2 {
		result, err := once.Do(ctx, locks, "order:42:charge", nil, func(ctx context.Context) error {
			fmt.Println("charging")
			return nil
		})
		fmt.Println(result.Verdict, err)
	}
	// Output:
	// charging
	// ran <nil>
	// done before <nil>
}

// Every replica calls this from its own timer, as often as it likes.
func ExampleEvery() {
	ctx := context.Background()
	locks := holdfast.New(memstore.New(), nil)
	defer locks.Close()

	report := func(ctx context.Context) error {
		fmt.Println("writing the report")
		return nil
	}
	for range 3 {
		if _, err := once.Every(ctx, locks, "report", 365*24*time.Hour/2, nil, report); err != nil {
			fmt.Println(err)
		}
	}
	// Output: writing the report
}

func ExampleIn() {
	ctx := context.Background()
	locks := holdfast.New(memstore.New(), nil)
	defer locks.Close()

	closing := time.Now().Truncate(time.Hour)
	slot := once.Slot{Start: closing, End: closing.Add(2 * time.Hour)}
	result, err := once.In(ctx, locks, "close-the-books", slot, &once.Options{AtMostOnce: true}, func(ctx context.Context) error {
		return fmt.Errorf("the printer is on fire")
	})
	fmt.Println(result.Verdict, err)
	result, err = once.In(ctx, locks, "close-the-books", slot, nil, func(ctx context.Context) error { return nil })
	fmt.Println(result.Verdict, err)
	// Output:
	// ran the printer is on fire
	// done before <nil>
}
